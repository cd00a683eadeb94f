// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/utf8.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::text {
namespace {

struct Lead {
  std::size_t size = 0;  // of the character; 0 if no character begins so
  unsigned second_min = 0x80;
  unsigned second_max = 0xbf;
};

Lead read_lead(unsigned byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xc2) return {0};
  if (byte < 0xe0) return {2};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0};
}

}  // namespace

Utf8Unit read_utf8(std::string_view text) {
  CHECK(!text.empty());
  const auto byte = [&](std::size_t i) {
    return static_cast<unsigned>(static_cast<unsigned char>(text[i]));
  };
  const Lead lead = read_lead(byte(0));
  if (lead.size == 0) return {.kind = Utf8Unit::Kind::kInvalid, .size = 1};
  if (lead.size == 1) {
    return {.kind = Utf8Unit::Kind::kCharacter, .size = 1, .code_point = byte(0)};
  }
  char32_t code_point = byte(0) & (0x7fu >> lead.size);
  for (std::size_t i = 1; i < lead.size; ++i) {
    if (i == text.size()) return {.kind = Utf8Unit::Kind::kUnfinished, .size = i};
    const unsigned low = i == 1 ? lead.second_min : 0x80;
    const unsigned high = i == 1 ? lead.second_max : 0xbf;
    if (byte(i) < low || byte(i) > high) return {.kind = Utf8Unit::Kind::kInvalid, .size = i};
    code_point = (code_point << 6) | (byte(i) & 0x3fu);
  }
  return {.kind = Utf8Unit::Kind::kCharacter, .size = lead.size, .code_point = code_point};
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = read_utf8(text.substr(at));
    if (unit.kind != Utf8Unit::Kind::kCharacter) return at;
    at += unit.size;
  }
  return std::string_view::npos;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xc0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3f));
  } else if (code_point < 0x10000) {
    put(0xe0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3f));
    put(0x80 | (code_point & 0x3f));
  } else {
    put(0xf0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3f));
    put(0x80 | ((code_point >> 6) & 0x3f));
    put(0x80 | (code_point & 0x3f));
  }
}

}  // namespace lockstep::text
