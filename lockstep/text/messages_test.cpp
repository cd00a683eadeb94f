// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::text {
namespace {

using io::Json;
using testing::HasSubstr;

Json json(std::string_view text) {
  return io::parse_json(text, "test").value();
}

TEST(Messages, GoodOnesPassWithAllTheirKeys) {
  const Json messages = json(R"([
    {"role": "system", "content": "s", "name": "n", "extra": {"a": [1]}},
    {"role": "user", "content": [{"type": "text", "text": "t"}, {"type": "image", "image": "x"},
      {"type": "image_url", "image_url": {"url": "u"}}, {"type": "video", "video": "v"},
      {"text": "t"}, {"image": "i"}]},
    {"role": "assistant", "content": null, "reasoning_content": null, "tool_calls": null},
    {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
    {"role": "tool", "content": "", "tool_call_id": "1"}])");
  EXPECT_EQ(normalize_messages(messages).value(), messages);
  EXPECT_EQ(normalize_messages(Json::array()).value(), Json::array());
}

TEST(Messages, ArgumentsBecomeObjects) {
  const auto arguments = [](const std::string& value) {
    const Json out = normalize_messages(json(R"([{"role": "assistant", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": )" +
                                             value + "}}]}]"))
                         .value();
    return *out.as_array()[0].find("tool_calls")->as_array()[0].find("function")->find("arguments");
  };
  EXPECT_EQ(arguments(R"({"b": 1, "a": 2})").dump(), R"({"b":1,"a":2})");
  EXPECT_EQ(arguments(R"("{\"b\": 1, \"a\": [true]}")").dump(), R"({"b":1,"a":[true]})");
  EXPECT_EQ(arguments(R"("")"), Json::object());
  EXPECT_EQ(arguments("null"), Json::object());
  const Json bare =
      normalize_messages(
          json(R"([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{}"}]}])"))
          .value();
  EXPECT_EQ(*bare.as_array()[0].find("tool_calls")->as_array()[0].find("arguments"),
            Json::object());
}

struct Bad {
  const char* messages;
  const char* where;
  const char* message;
};

TEST(Messages, BadShapesAreNamedByTheirPlace) {
  const Bad cases[] = {
      {R"({})", "messages", "array"},
      {R"("hi")", "messages", "but is string"},
      {R"([{"role": "user", "content": "a"}, 5])", "messages[1]", "but is integer"},
      {R"([{"content": "a"}])", "messages[0].role", "missing"},
      {R"([{"role": 1}])", "messages[0].role", "a string"},
      {R"([{"role": "user", "content": 5}])", "messages[0].content", "but is integer"},
      {R"([{"role": "user", "content": {"text": "a"}}])", "messages[0].content", "but is object"},
      {R"([{"role": "user", "content": ["a"]}])", "messages[0].content[0]", "but is string"},
      {R"([{"role": "user", "content": [{}]}])", "messages[0].content[0].type", "missing"},
      {R"([{"role": "user", "content": [{"type": "audio"}]}])", "messages[0].content[0].type",
       "\"audio\""},
      {R"([{"role": "user", "content": [{"type": 3}]}])", "messages[0].content[0].type",
       "a string"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text",
       "missing"},
      {R"([{"role": "user", "content": [{"type": "text", "text": null}]}])",
       "messages[0].content[0].text", "but is null"},
      {R"([{"role": "assistant", "reasoning_content": []}])", "messages[0].reasoning_content",
       "a string"},
      {R"([{"role": "assistant", "tool_calls": {}}])", "messages[0].tool_calls", "array"},
      {R"([{"role": "assistant", "tool_calls": [1]}])", "messages[0].tool_calls[0]", "object"},
      {R"([{"role": "assistant", "tool_calls": [{"function": []}]}])",
       "messages[0].tool_calls[0].function", "but is array"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {}}]}])",
       "messages[0].tool_calls[0].function.name", "missing"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}])",
       "messages[0].tool_calls[0].function.name", "a string"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}])",
       "messages[0].tool_calls[0].function.arguments", "but is integer"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}])",
       "messages[0].tool_calls[0].function.arguments", "not valid JSON"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[]"}}]}])",
       "messages[0].tool_calls[0].function.arguments", "but is array"},
  };
  for (const Bad& c : cases) {
    const auto result = normalize_messages(json(c.messages));
    ASSERT_FALSE(result.ok()) << c.messages;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument) << c.messages;
    EXPECT_EQ(result.error().where, c.where) << c.messages;
    EXPECT_THAT(result.error().message, HasSubstr(c.message)) << c.messages;
  }
}

TEST(Messages, InvalidUtf8IsNamed) {
  Json message = Json::object();
  message.set("role", Json("user"));
  message.set("content", Json(std::string("ab\xff")));
  Json messages = Json::array();
  messages.push_back(message);
  const auto result = normalize_messages(messages);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().where, "messages[0].content");
  EXPECT_THAT(result.error().message, HasSubstr("byte 2"));
}

TEST(Messages, DeepNestingIsRefused) {
  const std::string deep = std::string(123, '[') + std::string(123, ']');
  const auto result =
      normalize_messages(json(R"([{"role": "user", "content": "a", "x": )" + deep + "}]"));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kLimit);
  EXPECT_EQ(result.error().where, "messages[0].x");
}

TEST(Tools, AreNullOrAnArrayOfObjects) {
  EXPECT_TRUE(check_tools(Json()).ok());
  EXPECT_TRUE(check_tools(json(R"([{"name": "f"}])")).ok());
  EXPECT_EQ(check_tools(json(R"({})")).error().where, "tools");
  EXPECT_EQ(check_tools(json(R"([{}, "f"])")).error().where, "tools[1]");
}

}  // namespace
}  // namespace lockstep::text
