// SPDX-License-Identifier: Apache-2.0
// JSON values, light enough for every header. Parsing and printing go through nlohmann-json in
// json.cpp. Objects keep the order of their keys; of a repeated key the last value counts.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/result.h"

namespace lockstep::io {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : data_(value) {}
  Json(int value) : data_(std::int64_t{value}) {}
  Json(long value) : data_(std::int64_t{value}) {}
  Json(long long value) : data_(static_cast<std::int64_t>(value)) {}
  Json(unsigned value) : data_(std::uint64_t{value}) {}
  Json(unsigned long value) : data_(std::uint64_t{value}) {}
  Json(unsigned long long value) : data_(static_cast<std::uint64_t>(value)) {}
  Json(double value) : data_(value) {}
  Json(const char* value) : data_(std::string(value)) {}
  Json(std::string value) : data_(std::move(value)) {}
  Json(std::string_view value) : data_(std::string(value)) {}
  Json(Array value) : data_(std::move(value)) {}
  Json(Object value) : data_(std::move(value)) {}
  static Json array() { return Json(Array{}); }
  static Json object() { return Json(Object{}); }

  bool is_null() const { return data_.index() == 0; }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const;  // a whole number written without point or exponent
  bool is_number() const { return is_integer() || std::holds_alternative<double>(data_); }
  bool is_string() const { return std::holds_alternative<std::string>(data_); }
  bool is_array() const { return std::holds_alternative<Array>(data_); }
  bool is_object() const { return std::holds_alternative<Object>(data_); }

  // CHECK the kind; test it first where input decides.
  bool as_bool() const;
  std::int64_t as_int() const;  // integers above INT64_MAX saturate
  std::uint64_t as_uint() const;
  double as_double() const;  // any number
  const std::string& as_string() const;
  const Array& as_array() const;
  Array& as_array();
  const Object& as_object() const;
  Object& as_object();

  // Null when this is no object or has no such key.
  const Json* find(std::string_view key) const;
  // Adds or replaces; turns null into an object.
  Json& set(std::string_view key, Json value);
  // Turns null into an array.
  void push_back(Json value);
  std::size_t size() const;  // of arrays and objects, else 0

  const char* kind_name() const;  // "object", "string", ... for messages

  // Compact when indent < 0. Invalid UTF-8 is replaced by U+FFFD.
  std::string dump(int indent = -1) const;

  bool operator==(const Json&) const = default;

 private:
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array,
               Object>
      data_;
};

enum class RepeatedKeys { kLastCounts, kRefuse };

// Fails on malformed text, invalid UTF-8, and nesting deeper than limits::kJsonDepthMax.
Result<Json> parse_json(std::string_view text, const std::string& label,
                        RepeatedKeys repeated = RepeatedKeys::kLastCounts);

// Reads a whole file of at most `bytes_max`.
Result<std::string> read_file(const std::string& path, std::size_t bytes_max);
Result<Json> read_json_file(const std::string& path);

}  // namespace lockstep::io
