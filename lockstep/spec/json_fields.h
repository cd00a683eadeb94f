// SPDX-License-Identifier: Apache-2.0
// Typed access to the members of a JSON object that is input: a wrong kind or a value out of range
// is an error that names the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/io/json.h"

namespace lockstep::spec {

class JsonFields {
 public:
  // `json` must outlive this. `prefix` is put before keys in messages ("text_config.").
  JsonFields(const io::Json& json, std::string file, std::string prefix = "")
      : json_(json), file_(std::move(file)), prefix_(std::move(prefix)) {}

  struct Range {
    std::int64_t low = 0;
    std::int64_t high = 0;
  };

  // Optional members: nothing when the key is absent or null.
  Result<std::optional<std::int64_t>> integer(std::string_view key, Range range) const;
  Result<std::optional<double>> number(std::string_view key) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::string>> string(std::string_view key) const;
  // One id or a list of ids, none below 0; empty when absent.
  Result<std::vector<std::int64_t>> ids(std::string_view key) const;

  // Required members.
  Result<std::int64_t> required_integer(std::string_view key, Range range) const;
  Result<double> required_number(std::string_view key) const;
  Result<const io::Json*> required_object(std::string_view key) const;

  // Null when absent or null.
  const io::Json* find(std::string_view key) const;
  Error error(ErrorCode code, std::string_view key, const std::string& message) const;
  Error kind_error(std::string_view key, const char* expected, const io::Json& found) const;

 private:
  const io::Json& json_;
  std::string file_;
  std::string prefix_;
};

}  // namespace lockstep::spec
