// SPDX-License-Identifier: Apache-2.0
// UTF-8 as Unicode's table 3-7 defines it: no overlong forms, surrogates, or values past U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::text {

// What the bytes at the front of a text are.
struct Utf8Unit {
  enum class Kind { kCharacter, kInvalid, kUnfinished };
  Kind kind = Kind::kInvalid;
  std::size_t size = 0;     // bytes of the character, the unfinished one, or the ones to give up
  char32_t code_point = 0;  // of a character
};

// `text` isn't empty. Invalid: size is the longest ill-formed prefix of a character, at least 1.
// Unfinished: all of `text` is a proper prefix of some character.
Utf8Unit read_utf8(std::string_view text);

// Offset of the first byte that isn't part of a character, or npos.
std::size_t find_invalid_utf8(std::string_view text);

void append_utf8(char32_t code_point, std::string& out);

}  // namespace lockstep::text
