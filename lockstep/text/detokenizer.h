// SPDX-License-Identifier: Apache-2.0
// Ids to text, one at a time, cut only between UTF-8 characters. The outputs of push and flush
// joined are exactly the joined bytes of the tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/text/tokenizer.h"

namespace lockstep::text {

class Detokenizer {
 public:
  // Keeps a reference to `tokenizer`. With `skip_special`, special tokens yield nothing.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special);

  // Text that is complete after `id`. The beginning of an unfinished character (at most 3 bytes) is
  // held back; bytes that can't become a character any more pass as they are.
  std::string push(std::int32_t id);

  // What is still held back.
  std::string flush();

  struct Mark {
    std::array<char, 3> tail{};
    std::uint8_t tail_size = 0;
  };
  Mark mark() const { return state_; }
  void rewind(Mark mark) { state_ = mark; }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  Mark state_;
};

}  // namespace lockstep::text
