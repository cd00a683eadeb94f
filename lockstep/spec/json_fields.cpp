// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/json_fields.h"

#include <limits>

#include "lockstep/base/limits.h"

namespace lockstep::spec {
namespace {

// A value as a message shows it: never longer than a line.
std::string shown(const io::Json& value) {
  constexpr std::size_t kShownBytesMax = 60;
  if (value.is_array() || value.is_object()) return value.kind_name();
  const std::string text = value.dump();
  return text.size() > kShownBytesMax ? text.substr(0, kShownBytesMax) + "..." : text;
}

}  // namespace

const io::Json* JsonFields::find(std::string_view key) const {
  const io::Json* value = json_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Error JsonFields::error(ErrorCode code, std::string_view key, const std::string& message) const {
  return Error{code, "'" + prefix_ + std::string(key) + "' " + message, file_};
}

Error JsonFields::kind_error(std::string_view key, const char* expected,
                             const io::Json& found) const {
  return error(
      ErrorCode::kFormat, key,
      std::string("is ") + found.kind_name() + " " + shown(found) + ", expected " + expected);
}

Result<std::optional<std::int64_t>> JsonFields::integer(std::string_view key, Range range) const {
  const io::Json* value = find(key);
  if (value == nullptr) return std::optional<std::int64_t>();
  if (!value->is_integer()) return kind_error(key, "an integer", *value);
  if (value->as_int() < range.low || value->as_int() > range.high) {
    return error(ErrorCode::kLimit, key,
                 "is " + shown(*value) + ", expected " + std::to_string(range.low) + " to " +
                     std::to_string(range.high));
  }
  return std::optional(value->as_int());
}

Result<std::optional<double>> JsonFields::number(std::string_view key) const {
  const io::Json* value = find(key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return kind_error(key, "a number", *value);
  return std::optional(value->as_double());
}

Result<std::optional<bool>> JsonFields::boolean(std::string_view key) const {
  const io::Json* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_bool()) return kind_error(key, "true or false", *value);
  return std::optional(value->as_bool());
}

Result<std::optional<std::string>> JsonFields::string(std::string_view key) const {
  const io::Json* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return kind_error(key, "a string", *value);
  return std::optional(value->as_string());
}

Result<std::vector<std::int64_t>> JsonFields::ids(std::string_view key) const {
  std::vector<std::int64_t> ids;
  const io::Json* value = find(key);
  if (value == nullptr) return ids;
  const auto add = [&](const io::Json& id) -> Status {
    if (!id.is_integer()) return kind_error(key, "a token id or a list of token ids", id);
    if (id.as_int() < 0 || id.as_int() >= limits::kVocabMax) {
      return error(ErrorCode::kLimit, key, "holds " + shown(id) + ", which is no token id");
    }
    ids.push_back(id.as_int());
    return {};
  };
  if (!value->is_array()) {
    LOCKSTEP_TRY_STATUS(add(*value));
    return ids;
  }
  for (const io::Json& id : value->as_array())
    LOCKSTEP_TRY_STATUS(add(id));
  return ids;
}

Result<std::int64_t> JsonFields::required_integer(std::string_view key, Range range) const {
  LOCKSTEP_TRY(const auto value, integer(key, range));
  if (!value) return error(ErrorCode::kFormat, key, "is missing; an integer is required");
  return *value;
}

Result<double> JsonFields::required_number(std::string_view key) const {
  LOCKSTEP_TRY(const auto value, number(key));
  if (!value) return error(ErrorCode::kFormat, key, "is missing; a number is required");
  return *value;
}

Result<const io::Json*> JsonFields::required_object(std::string_view key) const {
  const io::Json* value = find(key);
  if (value == nullptr) {
    return error(ErrorCode::kFormat, key, "is missing; an object is required");
  }
  if (!value->is_object()) return kind_error(key, "an object", *value);
  return value;
}

}  // namespace lockstep::spec
