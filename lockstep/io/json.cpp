// SPDX-License-Identifier: Apache-2.0
#include "lockstep/io/json.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "lockstep/base/limits.h"

namespace lockstep::io {
namespace {

using Ordered = nlohmann::ordered_json;

// Builds a Json from parser events, so that nesting is bounded before anything recurses.
class Builder : public nlohmann::json_sax<Ordered> {
 public:
  explicit Builder(RepeatedKeys repeated) : repeated_(repeated) {}

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(std::int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return add(Json(static_cast<std::int64_t>(value)));
    }
    return add(Json(std::uint64_t{value}));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(Json(value)); }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    keys_.back() = std::move(value);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    const std::string what = e.what();
    const std::size_t colon = what.find(": ");
    error = "not valid JSON near byte " + std::to_string(position) + " (" +
            (colon == std::string::npos ? what : what.substr(colon + 2)) + ")";
    return false;
  }

  Json root;
  std::string error;

 private:
  bool add(Json value) {
    if (++values_ > limits::kJsonValuesMax) {
      error = "has more than " + std::to_string(limits::kJsonValuesMax) + " values";
      return false;
    }
    if (stack_.empty()) {
      root = std::move(value);
    } else if (stack_.back().is_array()) {
      stack_.back().push_back(std::move(value));
    } else {
      // Repeated keys are settled when the object closes: looking each key up here is quadratic.
      stack_.back().as_object().emplace_back(std::move(keys_.back()), std::move(value));
    }
    return true;
  }
  bool open(Json value) {
    if (stack_.size() >= limits::kJsonDepthMax) {
      error = "nested deeper than " + std::to_string(limits::kJsonDepthMax) + " levels";
      return false;
    }
    stack_.push_back(std::move(value));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    Json value = std::move(stack_.back());
    stack_.pop_back();
    keys_.pop_back();
    if (value.is_object() && !settle_repeated_keys(value.as_object())) return false;
    return add(std::move(value));
  }
  bool settle_repeated_keys(Json::Object& members) {
    std::vector<std::size_t> order(members.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const int sign = members[a].first.compare(members[b].first);
      return sign != 0 ? sign < 0 : a < b;
    });
    std::vector<bool> drop(members.size(), false);
    bool any = false;
    for (std::size_t i = 0; i + 1 < order.size(); ++i) {
      if (members[order[i]].first == members[order[i + 1]].first) drop[order[i]] = any = true;
      if (any && repeated_ == RepeatedKeys::kRefuse) {
        error = "key '" + members[order[i]].first.substr(0, limits::kTensorNameBytesMax) +
                "' stands twice in one object";
        return false;
      }
    }
    if (!any) return true;
    Json::Object kept;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (!drop[i]) kept.push_back(std::move(members[i]));
    }
    members = std::move(kept);
    return true;
  }

  RepeatedKeys repeated_;
  std::size_t values_ = 0;
  std::vector<Json> stack_;
  std::vector<std::string> keys_;
};

Ordered to_nlohmann(const Json& value) {
  if (value.is_null()) return nullptr;
  if (value.is_bool()) return value.as_bool();
  if (value.is_string()) return value.as_string();
  if (value.is_array()) {
    Ordered array = Ordered::array();
    for (const Json& item : value.as_array())
      array.push_back(to_nlohmann(item));
    return array;
  }
  if (value.is_object()) {
    Ordered object = Ordered::object();
    auto& members = object.get_ref<Ordered::object_t&>();
    // Directly into the vector: operator[] looks for the key first.
    for (const auto& [key, item] : value.as_object()) {
      static_cast<std::vector<std::pair<const std::string, Ordered>>&>(members).emplace_back(
          key, to_nlohmann(item));
    }
    return object;
  }
  if (!value.is_integer()) return value.as_double();
  if (value.as_int() == std::numeric_limits<std::int64_t>::max()) return value.as_uint();
  return value.as_int();
}

}  // namespace

bool Json::is_integer() const {
  return std::holds_alternative<std::int64_t>(data_) ||
         std::holds_alternative<std::uint64_t>(data_);
}

bool Json::as_bool() const {
  CHECK(is_bool());
  return std::get<bool>(data_);
}

std::int64_t Json::as_int() const {
  CHECK(is_integer());
  if (const auto* value = std::get_if<std::int64_t>(&data_)) return *value;
  const std::uint64_t value = std::get<std::uint64_t>(data_);
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  return value > static_cast<std::uint64_t>(kMax) ? kMax : static_cast<std::int64_t>(value);
}

std::uint64_t Json::as_uint() const {
  CHECK(is_integer());
  if (const auto* value = std::get_if<std::uint64_t>(&data_)) return *value;
  return static_cast<std::uint64_t>(std::get<std::int64_t>(data_));
}

double Json::as_double() const {
  CHECK(is_number());
  if (const auto* value = std::get_if<double>(&data_)) return *value;
  if (const auto* value = std::get_if<std::uint64_t>(&data_)) return static_cast<double>(*value);
  return static_cast<double>(std::get<std::int64_t>(data_));
}

const std::string& Json::as_string() const {
  CHECK(is_string());
  return std::get<std::string>(data_);
}

const Json::Array& Json::as_array() const {
  CHECK(is_array());
  return std::get<Array>(data_);
}

Json::Array& Json::as_array() {
  CHECK(is_array());
  return std::get<Array>(data_);
}

const Json::Object& Json::as_object() const {
  CHECK(is_object());
  return std::get<Object>(data_);
}

Json::Object& Json::as_object() {
  CHECK(is_object());
  return std::get<Object>(data_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& member : std::get<Object>(data_)) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) data_ = Object{};
  for (Member& member : as_object()) {
    if (member.first == key) return member.second = std::move(value);
  }
  return as_object().emplace_back(std::string(key), std::move(value)).second;
}

void Json::push_back(Json value) {
  if (is_null()) data_ = Array{};
  as_array().push_back(std::move(value));
}

std::size_t Json::size() const {
  if (is_array()) return as_array().size();
  return is_object() ? as_object().size() : 0;
}

const char* Json::kind_name() const {
  constexpr const char* kNames[] = {"null",   "boolean", "integer", "integer",
                                    "number", "string",  "array",   "object"};
  return kNames[data_.index()];
}

std::string Json::dump(int indent) const {
  return to_nlohmann(*this).dump(indent, ' ', false, Ordered::error_handler_t::replace);
}

Result<Json> parse_json(std::string_view text, const std::string& label, RepeatedKeys repeated) {
  Builder builder(repeated);
  if (!Ordered::sax_parse(text.begin(), text.end(), &builder)) {
    return Error{ErrorCode::kFormat, builder.error.empty() ? "not valid JSON" : builder.error,
                 label};
  }
  return std::move(builder.root);
}

namespace {

// A pipe without a writer would be waited for without end. Those that a shell sets up for a
// command (/dev/fd/N, /dev/stdin) have one.
bool is_stray_pipe(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode) && !path.starts_with("/dev/") &&
         !path.starts_with("/proc/");
}

// A link that leads nowhere is not the same as no file: a download may not be finished.
bool is_dangling_link(const std::string& path) {
  struct stat info{};
  return lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  if (is_stray_pipe(path)) return Error{ErrorCode::kIo, "is a pipe, not a regular file", path};
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                       &std::fclose);
  if (!file) {
    const bool absent = errno == ENOENT && !is_dangling_link(path);
    return Error{absent ? ErrorCode::kNotFound : ErrorCode::kIo,
                 std::string("can't be opened: ") + std::strerror(errno), path};
  }
  struct stat info{};
  if (fstat(fileno(file.get()), &info) == 0 && S_ISDIR(info.st_mode)) {
    return Error{ErrorCode::kIo, "is a folder, not a file", path};
  }
  std::string text;
  char buffer[65536];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, file.get())) {
    if (text.size() + got > bytes_max) {
      return Error{ErrorCode::kLimit,
                   "is larger than the limit of " + std::to_string(bytes_max) + " bytes", path};
    }
    text.append(buffer, got);
  }
  if (std::ferror(file.get())) {
    return Error{ErrorCode::kIo, std::string("can't be read: ") + std::strerror(errno), path};
  }
  return text;
}

Result<Json> read_json_file(const std::string& path) {
  LOCKSTEP_TRY(const std::string text, read_file(path, limits::kJsonFileBytesMax));
  return parse_json(text, path);
}

}  // namespace lockstep::io
