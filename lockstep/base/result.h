// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error. Used for everything that input can cause; our own
// mistakes use CHECK (check.h). Nothing in Lockstep throws.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "lockstep/base/check.h"

namespace lockstep {

// Stable error kinds. The names returned by error_code_name() are part of the JSON interface.
enum class ErrorCode {
  kInvalidArgument,  // a flag, field or request value that can't be honoured
  kNotFound,         // a file, folder or tensor that is not there
  kIo,               // the operating system refused: permission, disk, short read
  kFormat,           // bytes that are not what the format says: truncated, malformed
  kInconsistent,     // parts that are valid alone but contradict each other
  kLimit,            // larger than a limit of base/limits.h or than the context
  kUnsupported,      // well formed, but a feature this build does not have
  kTemplate,         // the chat template failed or raised
  kCancelled,        // stopped on request
};

const char* error_code_name(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;  // one sentence: what is wrong, expected and found, what to do
  std::string where;    // file, tensor, line or field; may be empty

  // "where: message", or the message alone.
  std::string to_string() const;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : data_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : data_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return data_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    CHECK_MSG(ok(), error_text().c_str());
    return std::get<0>(data_);
  }
  const T& value() const& {
    CHECK_MSG(ok(), error_text().c_str());
    return std::get<0>(data_);
  }
  T&& value() && {
    CHECK_MSG(ok(), error_text().c_str());
    return std::get<0>(std::move(data_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    CHECK(!ok());
    return std::get<1>(data_);
  }
  Error&& error() && {
    CHECK(!ok());
    return std::get<1>(std::move(data_));
  }

 private:
  std::string error_text() const { return ok() ? "" : std::get<1>(data_).to_string(); }
  std::variant<T, Error> data_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& {
    CHECK(!ok());
    return *error_;
  }
  Error&& error() && {
    CHECK(!ok());
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace lockstep

#define LOCKSTEP_CONCAT_INNER(a, b) a##b
#define LOCKSTEP_CONCAT(a, b) LOCKSTEP_CONCAT_INNER(a, b)
#define LOCKSTEP_TRY_INNER(decl, temp, expr)      \
  auto temp = (expr);                             \
  if (!temp.ok()) return std::move(temp).error(); \
  decl = std::move(temp).value()

// LOCKSTEP_TRY(auto file, open(path)): declares or assigns the value, or returns the error.
#define LOCKSTEP_TRY(decl, ...) \
  LOCKSTEP_TRY_INNER(decl, LOCKSTEP_CONCAT(lockstep_try_, __LINE__), (__VA_ARGS__))

// LOCKSTEP_TRY_STATUS(validate(x)): returns the error of a Status.
#define LOCKSTEP_TRY_STATUS(...)                                          \
  do {                                                                    \
    auto lockstep_status = (__VA_ARGS__);                                 \
    if (!lockstep_status.ok()) return std::move(lockstep_status).error(); \
  } while (false)
