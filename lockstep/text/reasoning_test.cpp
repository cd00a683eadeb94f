// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/reasoning.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <vector>

namespace lockstep::text {
namespace {

using Delta = ReasoningSplitter::Delta;

Delta split(bool opens, const std::vector<std::string>& pieces) {
  ReasoningSplitter splitter(opens);
  Delta out;
  const auto add = [&](const Delta& delta) {
    out.reasoning += delta.reasoning;
    out.content += delta.content;
  };
  for (const std::string& piece : pieces)
    add(splitter.push(piece));
  add(splitter.flush());
  return out;
}

struct Case {
  bool opens;
  std::string text, reasoning, content;
};

TEST(ReasoningSplitter, SplitsWholeTexts) {
  const Case cases[] = {
      {true, "Think.\n</think>\n\nAnswer.", "Think.", "Answer."},
      {true, "\nThink.\n\nMore.\n\n</think>Answer.\n", "Think.\n\nMore.", "Answer.\n"},
      {true, "\n\n</think>\n\n", "", ""},
      {true, "</think>a", "", "a"},
      {true, "", "", ""},
      {true, "never ends", "never ends", ""},
      {true, "ends in newlines\n\n", "ends in newlines", ""},
      {true, "ends in </thi", "ends in </thi", ""},
      {true, "a</think>b</think>c", "a", "b</think>c"},
      {true, "a < b </ c </thing> d</think>e", "a < b </ c </thing> d", "e"},
      {false, "\nplain </think> text", "", "\nplain </think> text"},
      {true, "x\n\n<tool_call>\n<function=f>\n", "x", "<tool_call>\n<function=f>\n"},
      {true, "<tool_call>\n<function=f>", "", "<tool_call>\n<function=f>"},
      {true, "\n\n<tool_call>\n<function=f>", "", "<tool_call>\n<function=f>"},
      {true, "say <tool_call>\n<function=f>\n</think>ok", "say <tool_call>\n<function=f>", "ok"},
      {true, "the <tool_call> tag\n</think>ok", "the <tool_call> tag", "ok"},
  };
  for (const Case& c : cases) {
    const Delta whole = split(c.opens, {c.text});
    EXPECT_EQ(whole.reasoning, c.reasoning) << c.text;
    EXPECT_EQ(whole.content, c.content) << c.text;
    std::vector<std::string> bytes;
    for (const char byte : c.text)
      bytes.emplace_back(1, byte);
    const Delta parts = split(c.opens, bytes);
    EXPECT_EQ(parts.reasoning, c.reasoning) << c.text;
    EXPECT_EQ(parts.content, c.content) << c.text;
  }
}

TEST(ReasoningSplitter, StreamsWhatIsCertain) {
  ReasoningSplitter splitter(true);
  EXPECT_TRUE(splitter.in_reasoning());
  EXPECT_EQ(splitter.push("one\n").reasoning, "one");
  EXPECT_EQ(splitter.push("two </th").reasoning, "\ntwo ");
  EXPECT_EQ(splitter.push("ree").reasoning, "</three");
  EXPECT_EQ(splitter.push("\n</think>").reasoning, "");
  EXPECT_FALSE(splitter.in_reasoning());
  EXPECT_EQ(splitter.push("\n\n").content, "");
  EXPECT_EQ(splitter.push("\nA\n").content, "A\n");
}

RC_GTEST_PROP(ReasoningSplitter, CutsDontMatter, (bool opens)) {
  const auto pieces = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
      "\n", "a", "<", "</", "think", ">", "</think>", "<tool_call>", "\n<function=", "/"));
  std::string text;
  for (const std::string& piece : pieces)
    text += piece;
  const Delta whole = split(opens, {text});
  const Delta parts = split(opens, pieces);
  RC_ASSERT(parts.reasoning == whole.reasoning);
  RC_ASSERT(parts.content == whole.content);
}

}  // namespace
}  // namespace lockstep::text
