// SPDX-License-Identifier: Apache-2.0
// Owners of the handles of bridge/bridge.h, for this folder only. Built in two ways: over the Rust
// library, or without it, when every open() is kUnsupported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"

struct lockstep_tokenizer;
struct lockstep_template;

namespace lockstep::text {

// `where` of errors is `label` throughout.
class BridgeTokenizer {
 public:
  static Result<BridgeTokenizer> open(std::string_view tokenizer_json,
                                      std::string_view listed_tokens_json, std::string label);
  BridgeTokenizer(BridgeTokenizer&& other) noexcept;
  BridgeTokenizer& operator=(BridgeTokenizer&& other) noexcept;
  ~BridgeTokenizer();

  Result<std::vector<std::int32_t>> encode(std::string_view text, bool match_added) const;
  Result<std::vector<std::string>> vocabulary() const;  // bytes by id
  Result<std::string> added_tokens_json() const;

 private:
  BridgeTokenizer(lockstep_tokenizer* handle, std::string label);
  lockstep_tokenizer* handle_;
  std::string label_;
};

class BridgeTemplate {
 public:
  static Result<BridgeTemplate> open(std::string_view source, std::string label);
  BridgeTemplate(BridgeTemplate&& other) noexcept;
  BridgeTemplate& operator=(BridgeTemplate&& other) noexcept;
  ~BridgeTemplate();

  // `marks` as in bridge.h.
  Result<std::string> render(std::string_view variables_json, std::string_view marks) const;

 private:
  BridgeTemplate(lockstep_template* handle, std::string label);
  lockstep_template* handle_;
  std::string label_;
};

}  // namespace lockstep::text
