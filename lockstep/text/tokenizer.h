// SPDX-License-Identifier: Apache-2.0
// The artifact's byte-level BPE tokenizer: text to ids by the `tokenizers` library behind
// bridge.h, ids to exact bytes by a table read once. tokenizer.json is the authority (spec 7.1);
// tokens that only tokenizer_config.json lists are added behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"

namespace lockstep::text {

// A token that is matched as a whole before BPE, such as "<|im_end|>" or "<think>".
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;  // left out when decoding with skip_special
};

// What encode() does with the literals of added tokens inside a text.
enum class AddedTokens {
  kMatch,   // each becomes its one id, as the library does
  kIgnore,  // they are plain text
};

class Tokenizer {
 public:
  // Reads tokenizer.json and, where present, tokenizer_config.json of `model_dir`. Refused by name:
  // an added token whose stated id isn't the one the library gives it, one listed with two ids,
  // flags other than `special` and `normalized`, and a decoder that isn't byte level.
  // Without the bridge: kUnsupported.
  static Result<Tokenizer> open(const std::string& model_dir);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Thread safe. Invalid UTF-8 is an error that names the byte offset; the empty text has no ids.
  // No token is put in front or behind.
  Result<std::vector<std::int32_t>> encode(std::string_view text, AddedTokens mode) const;

  // The bytes that `id` stands for: byte-level tokens decoded, added tokens literally. Not always
  // valid UTF-8 by itself. Empty when out of range. Valid as long as the tokenizer.
  std::string_view token_bytes(std::int32_t id) const;

  // Ids from size() on are padding of the embedding and must never be sampled (trap T-29).
  std::int32_t size() const;
  bool is_special(std::int32_t id) const;
  bool is_added(std::int32_t id) const;

  // The id of the token that stands for exactly these bytes; added tokens first.
  std::optional<std::int32_t> find(std::string_view token) const;

  // In the order of their ids.
  const std::vector<AddedToken>& added_tokens() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::text
