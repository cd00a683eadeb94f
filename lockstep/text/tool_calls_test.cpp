// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/tool_calls.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace lockstep::text {
namespace {

using io::Json;

Json json(std::string_view text) {
  return io::parse_json(text, "test").value();
}

const Json& tools() {
  static const Json value = json(R"([
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
      "s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"},
      "b": {"type": "boolean"}, "o": {"type": "object"}, "a": {"type": "array"},
      "u": {"type": ["string", "integer"]}, "m": {"anyOf": [{"type": "object"}, {"type": "null"}]},
      "e": {"enum": ["x"]}}}}},
    {"name": "bare", "parameters": {"properties": {"i": {"type": "integer"}}}}])");
  return value;
}

std::string call(const std::string& name, const std::string& key, const std::string& value) {
  return "<tool_call>\n<function=" + name + ">\n<parameter=" + key + ">\n" + value +
         "\n</parameter>\n</function>\n</tool_call>";
}

Json argument(const std::string& key, const std::string& value) {
  const ParsedContent parsed = parse_tool_calls(call("f", key, value), tools());
  EXPECT_EQ(parsed.calls.size(), 1u) << value;
  if (parsed.calls.size() != 1) return {};
  EXPECT_EQ(parsed.content, "");
  return *parsed.calls[0].arguments.find(key);
}

TEST(ToolCalls, ReadsCallsAndTheContentBefore) {
  const ParsedContent parsed = parse_tool_calls(
      "Let me look.\n\n" + call("f", "s", "one\ntwo") + "\n" + call("bare", "i", "7") + "\n",
      tools());
  EXPECT_EQ(parsed.content, "Let me look.");
  EXPECT_TRUE(parsed.complete);
  ASSERT_EQ(parsed.calls.size(), 2u);
  EXPECT_EQ(parsed.calls[0], (ToolCall{"f", json(R"({"s": "one\ntwo"})")}));
  EXPECT_EQ(parsed.calls[1], (ToolCall{"bare", json(R"({"i": 7})")}));
}

TEST(ToolCalls, KeepsTheOrderOfParametersAndTheLastOfARepeatedOne) {
  const ParsedContent parsed = parse_tool_calls(
      "<tool_call>\n<function=f>\n<parameter=z>\n1\n</parameter>\n<parameter=s>\n2\n</parameter>\n"
      "<parameter=z>\n3\n</parameter>\n</function>\n</tool_call>",
      tools());
  ASSERT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.calls[0].arguments.dump(), R"({"z":"3","s":"2"})");
}

TEST(ToolCalls, TypesValuesByTheSchema) {
  EXPECT_EQ(argument("s", "12"), Json("12"));
  EXPECT_EQ(argument("s", "null"), Json("null"));
  EXPECT_EQ(argument("i", "12"), Json(12));
  EXPECT_EQ(argument("i", "-3"), Json(-3));
  EXPECT_EQ(argument("i", "twelve"), Json("twelve"));
  EXPECT_EQ(argument("i", "null"), Json());
  EXPECT_EQ(argument("n", "1.5"), Json(1.5));
  EXPECT_EQ(argument("b", "true"), Json(true));
  EXPECT_EQ(argument("b", "False"), Json(false));
  EXPECT_EQ(argument("b", "yes"), Json("yes"));
  EXPECT_EQ(argument("o", R"({"k": [1, "</parameter>"]})"), json(R"({"k": [1, "</parameter>"]})"));
  EXPECT_EQ(argument("o", "{broken"), Json("{broken"));
  EXPECT_EQ(argument("a", "[1,\n2]"), json("[1, 2]"));
  EXPECT_EQ(argument("u", "5"), Json(5));
  EXPECT_EQ(argument("u", "[5]"), Json("[5]"));
  EXPECT_EQ(argument("m", "null"), Json());
  EXPECT_EQ(argument("e", "1"), Json("1"));
  EXPECT_EQ(argument("undeclared", "1"), Json("1"));
  EXPECT_EQ(parse_tool_calls(call("unknown", "i", "1"), tools()).calls.at(0).arguments,
            json(R"({"i": "1"})"));
  EXPECT_EQ(parse_tool_calls(call("f", "i", "1"), Json()).calls.at(0).arguments,
            json(R"({"i": "1"})"));
}

TEST(ToolCalls, StripsOneNewlineAtEachEndOnly) {
  EXPECT_EQ(argument("s", ""), Json(""));
  EXPECT_EQ(argument("s", "\n a \n"), Json("\n a \n"));
  EXPECT_EQ(parse_tool_calls(
                "<tool_call><function=f><parameter=s>x</parameter></function></tool_call>", tools())
                .calls.at(0)
                .arguments,
            json(R"({"s": "x"})"));
}

TEST(ToolCalls, ValuesAreRawText) {
  for (const std::string value :
       {"a < b && c > d", "</parameter>", "x</parameter> y", "</function>", "</tool_call>",
        "<tool_call>\n<function=g>\n</function>\n</tool_call>", "<parameter=k>", "&lt;b&gt;",
        "\xc3\xa9\xe4\xb8\xad", "{\"a\": 1}"}) {
    EXPECT_EQ(argument("s", value), Json(value));
  }
}

TEST(ToolCalls, AFunctionNeedsNoParameters) {
  const ParsedContent parsed =
      parse_tool_calls("<tool_call>\n<function=now>\n</function>\n</tool_call>", tools());
  ASSERT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.calls[0], (ToolCall{"now", Json::object()}));
}

TEST(ToolCalls, WhatIsNoCallStaysContentToTheByte) {
  for (const std::string text :
       {"", "  plain \n", "<tool_call>", "a <tool_call> b </tool_call> c",
        "<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\nstray\n</function>\n</tool_call>",
        "<tool_call>\n<function=f\n>\n</function>\n</tool_call>", "</tool_call>", "<tool_cal",
        "\n\n<tool", "<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>\n</tool_call>"}) {
    const ParsedContent parsed = parse_tool_calls(text, tools());
    EXPECT_EQ(parsed.content, text);
    EXPECT_TRUE(parsed.calls.empty());
  }
}

TEST(ToolCalls, AMalformedCallDoesntHideTheNextOne) {
  const ParsedContent parsed =
      parse_tool_calls("<tool_call>nonsense</tool_call>\n" + call("f", "i", "1"), tools());
  EXPECT_EQ(parsed.content, "<tool_call>nonsense</tool_call>");
  EXPECT_EQ(parsed.calls.size(), 1u);
}

TEST(ToolCalls, ACallCutShortIsContentAndReported) {
  const std::string whole = "Hm.\n" + call("f", "s", "text");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const ParsedContent parsed = parse_tool_calls(whole.substr(0, size), tools());
    EXPECT_EQ(parsed.content, whole.substr(0, size));
    EXPECT_TRUE(parsed.calls.empty());
    EXPECT_EQ(parsed.complete, size < whole.find("<tool_call>") + 11);
  }
}

TEST(ToolCallSplitter, StreamsContentButNoPartOfACall) {
  ToolCallSplitter splitter(tools());
  EXPECT_EQ(splitter.push("Look: a < b"), "Look: a < b");
  EXPECT_EQ(splitter.push("\n\n<tool"), "");
  EXPECT_EQ(splitter.push("box>"), "\n\n<toolbox>");
  EXPECT_EQ(splitter.push("\n" + call("f", "i", "1")), "");
  EXPECT_EQ(splitter.calls().size(), 1u);
  EXPECT_EQ(splitter.push("\n"), "");
  EXPECT_EQ(splitter.push("after"), "\nafter");
  EXPECT_EQ(splitter.push("<tool_call> is a tag"), "<tool_call> is a tag");
  EXPECT_EQ(splitter.flush(), "");
}

rc::Gen<std::vector<std::string>> pieces_gen() {
  return rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
      "<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=s>",
      "<parameter=i>", "</parameter>", "\n", " ", "7", "x", "<", "</", "tool_call>", "=", ">",
      call("f", "i", "1"), call("f", "s", "</parameter>")));
}

RC_GTEST_PROP(ToolCallSplitter, CutsDontMatter, ()) {
  const auto pieces = *pieces_gen();
  std::string text, content;
  ToolCallSplitter splitter(tools());
  for (const std::string& piece : pieces) {
    text += piece;
    for (const char byte : piece)
      content += splitter.push({&byte, 1});
  }
  content += splitter.flush();
  const ParsedContent whole = parse_tool_calls(text, tools());
  RC_ASSERT(content == whole.content);
  RC_ASSERT(splitter.calls() == whole.calls);
  RC_ASSERT(splitter.cut_short() == !whole.complete);
}

RC_GTEST_PROP(ToolCallSplitter, NothingIsLostWithoutACall, ()) {
  const auto pieces = *pieces_gen();
  std::string text;
  for (const std::string& piece : pieces)
    text += piece;
  const ParsedContent parsed = parse_tool_calls(text, tools());
  if (parsed.calls.empty()) RC_ASSERT(parsed.content == text);
}

}  // namespace
}  // namespace lockstep::text
