// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/answer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace lockstep::text {
namespace {

using io::Json;

const Tokenizer& demo() {
  static const Tokenizer tokenizer = Tokenizer::open("models/demo").value();
  return tokenizer;
}

Json one_tool() {
  return io::parse_json(
             R"([{"name": "f", "parameters": {"properties": {"i": {"type": "integer"}}}}])", "test")
      .value();
}

constexpr const char* kCall =
    "<tool_call>\n<function=f>\n<parameter=i>\n5\n</parameter>\n</function>\n</tool_call>";

AnswerStream::Options options_of(bool opens_reasoning, std::vector<std::string> stops, Json tools) {
  return {.opens_reasoning = opens_reasoning, .stops = std::move(stops), .tools = std::move(tools)};
}

Answer answer_of(const std::string& text, AnswerStream::Options options) {
  AnswerStream stream(demo(), std::move(options));
  std::string reasoning, content;
  const auto add = [&](const AnswerStream::Delta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
  };
  const std::vector<std::int32_t> ids = demo().encode(text, AddedTokens::kMatch).value();
  for (const std::int32_t id : ids) {
    add(stream.push(id));
  }
  add(stream.finish());
  EXPECT_EQ(reasoning, stream.answer().reasoning);
  EXPECT_EQ(content, stream.answer().text);
  return stream.answer();
}

TEST(AnswerStream, SeparatesReasoningContentAndCalls) {
  const std::string text = std::string("Hm, caf\xc3\xa9.\n</think>\n\nLooking.\n\n") + kCall;
  const Answer answer = answer_of(text, options_of(true, {}, one_tool()));
  EXPECT_EQ(answer.reasoning, "Hm, caf\xc3\xa9.");
  EXPECT_EQ(answer.text, "Looking.");
  EXPECT_EQ(answer.raw_text, text);
  ASSERT_EQ(answer.tool_calls.size(), 1u);
  EXPECT_EQ(answer.tool_calls[0].name, "f");
  EXPECT_EQ(*answer.tool_calls[0].arguments.find("i"), Json(5));
  EXPECT_FALSE(answer.stopped);
}

TEST(AnswerStream, WithoutToolsCallsAreText) {
  const Answer answer = answer_of(kCall, {});
  EXPECT_EQ(answer.text, kCall);
  EXPECT_TRUE(answer.tool_calls.empty());
}

TEST(AnswerStream, StopStringsEndTheTextButNotTheRawText) {
  const Answer answer =
      answer_of("one two three four", options_of(false, {"wo th", "zzz"}, Json()));
  EXPECT_EQ(answer.text, "one t");
  EXPECT_TRUE(answer.stopped);
  EXPECT_EQ(answer.raw_text, "one two three four");
}

TEST(AnswerStream, SpecialTokensCountInTheRawTextOnly) {
  const Answer answer = answer_of("a<|im_start|>b<|fim_pad|>", {});
  EXPECT_EQ(answer.text, "ab<|fim_pad|>");
  EXPECT_EQ(answer.raw_text, "a<|im_start|>b<|fim_pad|>");
}

TEST(AnswerStream, AnUnfinishedCharacterIsFlushed) {
  AnswerStream stream(demo(), {});
  EXPECT_EQ(stream.push(*demo().find("\xc3")).content, "");
  EXPECT_EQ(stream.finish().content, "\xc3");
  EXPECT_EQ(stream.answer().raw_text, "\xc3");
}

// Text with every kind of structure, cut into tokens.
rc::Gen<std::vector<std::int32_t>> ids_gen() {
  static const std::vector<std::int32_t> pool =
      demo()
          .encode(std::string("a\n</think>\n\xe2\x82\xac stop<|im_start|>") + kCall,
                  AddedTokens::kMatch)
          .value();
  return rc::gen::container<std::vector<std::int32_t>>(rc::gen::elementOf(pool));
}

bool same(const Answer& a, const Answer& b) {
  return a.text == b.text && a.raw_text == b.raw_text && a.reasoning == b.reasoning &&
         a.tool_calls == b.tool_calls && a.stopped == b.stopped;
}

RC_GTEST_PROP(AnswerStream, RewindIsAsIfNothingHappened, (bool opens)) {
  const auto before = *ids_gen(), undone = *ids_gen(), after = *ids_gen();
  const AnswerStream::Options options = options_of(opens, {"stop"}, one_tool());
  AnswerStream straight(demo(), options), rewound(demo(), options);
  for (const std::int32_t id : before) {
    straight.push(id);
    rewound.push(id);
  }
  const AnswerStream::Mark mark = rewound.mark();
  for (const std::int32_t id : undone)
    rewound.push(id);
  if (*rc::gen::arbitrary<bool>()) rewound.finish();
  rewound.rewind(mark);
  RC_ASSERT(same(straight.answer(), rewound.answer()));
  for (const std::int32_t id : after) {
    const AnswerStream::Delta a = straight.push(id), b = rewound.push(id);
    RC_ASSERT(a.content == b.content && a.reasoning == b.reasoning && a.stopped == b.stopped);
  }
  straight.finish();
  rewound.finish();
  RC_ASSERT(same(straight.answer(), rewound.answer()));
}

}  // namespace
}  // namespace lockstep::text
