// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/detokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "lockstep/io/json.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

using io::Json;

const Tokenizer& demo() {
  static const Tokenizer tokenizer = Tokenizer::open("models/demo").value();
  return tokenizer;
}

// Any ids, with many of the single-byte tokens that split characters.
rc::Gen<std::vector<std::int32_t>> ids_gen() {
  return rc::gen::container<std::vector<std::int32_t>>(
      rc::gen::oneOf(rc::gen::inRange(0, 256), rc::gen::inRange(0, 6150)));
}

std::string decode(const std::vector<std::int32_t>& ids, bool skip_special) {
  Detokenizer detokenizer(demo(), skip_special);
  std::string out;
  for (const std::int32_t id : ids)
    out += detokenizer.push(id);
  return out + detokenizer.flush();
}

TEST(Detokenizer, EqualsAllGoldenCases) {
  const Json cases = io::read_json_file("tests/golden/demo/tokenizer_cases.json").value();
  for (const Json& golden : cases.as_array()) {
    std::vector<std::int32_t> ids;
    for (const Json& id : golden.find("ids")->as_array()) {
      ids.push_back(static_cast<std::int32_t>(id.as_int()));
    }
    EXPECT_EQ(decode(ids, false), golden.find("decoded")->as_string());
    EXPECT_EQ(decode(ids, true), golden.find("decoded_skip_special")->as_string());
  }
}

TEST(Detokenizer, HoldsBackUnfinishedCharactersOnly) {
  // "€" is e2 82 ac, each byte a token of its own here.
  const auto ids = demo().encode("\xe2\x82\xac", AddedTokens::kIgnore).value();
  ASSERT_EQ(ids.size(), 3u);
  Detokenizer detokenizer(demo(), false);
  EXPECT_EQ(detokenizer.push(ids[0]), "");
  EXPECT_EQ(detokenizer.push(ids[1]), "");
  EXPECT_EQ(detokenizer.push(ids[2]), "\xe2\x82\xac");
  EXPECT_EQ(detokenizer.push(ids[0]), "");
  EXPECT_EQ(detokenizer.push(*demo().find("a")),
            "\xe2"
            "a");
  EXPECT_EQ(detokenizer.push(ids[1]), "\x82");  // no character begins so
  EXPECT_EQ(detokenizer.push(ids[0]), "");
  EXPECT_EQ(detokenizer.flush(), "\xe2");
  EXPECT_EQ(detokenizer.flush(), "");
}

RC_GTEST_PROP(Detokenizer, JoinsToTheBytesOfTheTokens, ()) {
  const auto ids = *ids_gen();
  std::string bytes;
  for (const std::int32_t id : ids)
    bytes += demo().token_bytes(id);
  RC_ASSERT(decode(ids, false) == bytes);
}

RC_GTEST_PROP(Detokenizer, CutsOnlyBetweenCharacters, ()) {
  const auto ids = *ids_gen();
  Detokenizer detokenizer(demo(), false);
  std::string text;
  for (const std::int32_t id : ids) {
    text += detokenizer.push(id);
    const Detokenizer::Mark held = detokenizer.mark();
    const std::string all = text + std::string(held.tail.data(), held.tail_size);
    std::size_t at = 0;
    while (at < text.size())
      at += read_utf8(std::string_view(all).substr(at)).size;
    RC_ASSERT(at == text.size());
    if (held.tail_size == 0) continue;
    RC_ASSERT(read_utf8(std::string_view(all).substr(at)).kind == Utf8Unit::Kind::kUnfinished);
  }
}

RC_GTEST_PROP(Detokenizer, RewindIsAsIfNothingHappened, ()) {
  const auto before = *ids_gen(), undone = *ids_gen(), after = *ids_gen();
  Detokenizer straight(demo(), true), rewound(demo(), true);
  for (const std::int32_t id : before)
    RC_ASSERT(straight.push(id) == rewound.push(id));
  const Detokenizer::Mark mark = rewound.mark();
  for (const std::int32_t id : undone)
    rewound.push(id);
  rewound.rewind(mark);
  for (const std::int32_t id : after)
    RC_ASSERT(straight.push(id) == rewound.push(id));
  RC_ASSERT(straight.flush() == rewound.flush());
}

}  // namespace
}  // namespace lockstep::text
