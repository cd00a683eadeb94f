// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/utf8.h"

#include <gtest/gtest.h>

namespace lockstep::text {
namespace {

using Kind = Utf8Unit::Kind;

struct Case {
  std::string_view bytes;
  Kind kind;
  std::size_t size;
};

// The boundaries of table 3-7 of the Unicode standard, and its examples of ill-formed text.
TEST(Utf8, ReadsTheBoundariesOfTheTable) {
  const Case cases[] = {
      {std::string_view("\0", 1), Kind::kCharacter, 1},
      {"\x7f", Kind::kCharacter, 1},
      {"\x80", Kind::kInvalid, 1},
      {"\xc0\x80", Kind::kInvalid, 1},
      {"\xc1\xbf", Kind::kInvalid, 1},
      {"\xc2\x80", Kind::kCharacter, 2},
      {"\xdf\xbf", Kind::kCharacter, 2},
      {"\xe0\x9f\xbf", Kind::kInvalid, 1},
      {"\xe0\xa0\x80", Kind::kCharacter, 3},
      {"\xed\x9f\xbf", Kind::kCharacter, 3},
      {"\xed\xa0\x80", Kind::kInvalid, 1},
      {"\xef\xbf\xbf", Kind::kCharacter, 3},
      {"\xf0\x8f\xbf\xbf", Kind::kInvalid, 1},
      {"\xf0\x90\x80\x80", Kind::kCharacter, 4},
      {"\xf4\x8f\xbf\xbf", Kind::kCharacter, 4},
      {"\xf4\x90\x80\x80", Kind::kInvalid, 1},
      {"\xf5\x80\x80\x80", Kind::kInvalid, 1},
      {"\xff", Kind::kInvalid, 1},
      {"\xc2", Kind::kUnfinished, 1},
      {"\xe2\x82", Kind::kUnfinished, 2},
      {"\xf0\x9f\x98", Kind::kUnfinished, 3},
      {"\xf0\x80", Kind::kInvalid, 1},
      {"\xe2\x82\x41", Kind::kInvalid, 2},
      {"\xf0\x9f\x98\x41", Kind::kInvalid, 3},
      {"\xc2\x41", Kind::kInvalid, 1},
  };
  for (const Case& c : cases) {
    const Utf8Unit unit = read_utf8(c.bytes);
    EXPECT_EQ(unit.kind, c.kind) << testing::PrintToString(c.bytes);
    EXPECT_EQ(unit.size, c.size) << testing::PrintToString(c.bytes);
  }
}

TEST(Utf8, EveryScalarValueRoundTrips) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string bytes;
    append_utf8(c, bytes);
    const Utf8Unit unit = read_utf8(bytes);
    ASSERT_EQ(unit.kind, Kind::kCharacter) << static_cast<unsigned>(c);
    ASSERT_EQ(unit.size, bytes.size());
    ASSERT_EQ(unit.code_point, c);
  }
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8(""), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("a\xc3\xa9z"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("a\xc3\xa9\xc3"), 3u);
  EXPECT_EQ(find_invalid_utf8("ab\xe2\x82zz"), 2u);
}

}  // namespace
}  // namespace lockstep::text
