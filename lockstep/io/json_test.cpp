// SPDX-License-Identifier: Apache-2.0
#include "lockstep/io/json.h"

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/base/limits.h"

namespace lockstep::io {
namespace {

using ::testing::HasSubstr;

Json parsed(const std::string& text) {
  return parse_json(text, "test").value();
}

TEST(Json, KeepsKindsAndOrder) {
  const Json json = parsed(R"({"z": 1, "a": [true, null, "x", 1.5, -7]})");
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json.as_object()[0].first, "z");
  EXPECT_EQ(json.as_object()[1].first, "a");
  const Json::Array& list = json.find("a")->as_array();
  EXPECT_TRUE(list[0].as_bool());
  EXPECT_TRUE(list[1].is_null());
  EXPECT_EQ(list[2].as_string(), "x");
  EXPECT_FALSE(list[3].is_integer());
  EXPECT_EQ(list[3].as_double(), 1.5);
  EXPECT_EQ(list[4].as_int(), -7);
}

TEST(Json, RoundTripsText) {
  const std::string text = R"({"b":[1,2.5,{"c":"\u0001\"\\/é😀"}],"a":{},"n":null,"t":true})";
  const Json json = parsed(text);
  EXPECT_EQ(parsed(json.dump()), json);
  EXPECT_EQ(parsed(json.dump(2)), json);
  EXPECT_EQ(parsed(R"({"a":[1,{"b":null}]})").dump(), R"({"a":[1,{"b":null}]})");
}

TEST(Json, LargeIntegers) {
  EXPECT_EQ(parsed("9223372036854775807").as_int(), INT64_MAX);
  EXPECT_EQ(parsed("-9223372036854775808").as_int(), INT64_MIN);
  const Json above = parsed("18446744073709551615");
  EXPECT_TRUE(above.is_integer());
  EXPECT_EQ(above.as_int(), INT64_MAX);
  EXPECT_EQ(above.as_uint(), UINT64_MAX);
  EXPECT_EQ(above.dump(), "18446744073709551615");
  EXPECT_EQ(parsed("9223372036854775807").dump(), "9223372036854775807");
  // Beyond 64 bits a number is no integer any more.
  EXPECT_FALSE(parsed("18446744073709551616").is_integer());
  EXPECT_FALSE(parse_json("1e999", "test").ok());
}

TEST(Json, DepthIsLimited) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parse_json(nested(limits::kJsonDepthMax), "test").ok());
  const auto deep = parse_json(nested(limits::kJsonDepthMax + 1), "test");
  ASSERT_FALSE(deep.ok());
  EXPECT_THAT(deep.error().message, HasSubstr("nested deeper than 128 levels"));
  EXPECT_FALSE(parse_json(std::string(10'000'000, '['), "test").ok());
}

TEST(Json, LastOfRepeatedKeysCounts) {
  const Json json = parsed(R"({"a":1,"b":2,"a":3})");
  EXPECT_EQ(json.size(), 2u);
  EXPECT_EQ(json.find("a")->as_int(), 3);
}

TEST(Json, RepeatedKeysAreRefusedOnDemand) {
  const auto json = parse_json(R"({"x":{"a":1,"b":2,"a":3}})", "f", RepeatedKeys::kRefuse);
  ASSERT_FALSE(json.ok());
  EXPECT_THAT(json.error().message, HasSubstr("'a'"));
  EXPECT_TRUE(parse_json(R"({"x":{"a":1},"a":3})", "f", RepeatedKeys::kRefuse).ok());
}

TEST(Json, RefusesMalformedText) {
  for (const char* text : {"", "{", "{\"a\":}", "[1,]", "nul", "01", "1 2", "\"\\x\"", "\"\xff\"",
                           "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "{\"a\":1}x"}) {
    const auto json = parse_json(text, "name");
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_EQ(json.error().code, ErrorCode::kFormat);
    EXPECT_EQ(json.error().where, "name");
    EXPECT_THAT(json.error().message, HasSubstr("not valid JSON near byte"));
  }
}

TEST(Json, DumpReplacesInvalidUtf8) {
  EXPECT_EQ(Json(std::string("a\xff") + "b").dump(),
            "\"a\xef\xbf\xbd"
            "b\"");
}

TEST(Json, SetReplacesAndPushBackAppends) {
  Json json;
  json.set("a", 1);
  json.set("a", "two");
  json.set("list", Json()).push_back(5);
  EXPECT_EQ(json.dump(), R"({"a":"two","list":[5]})");
  EXPECT_EQ(json.find("missing"), nullptr);
  EXPECT_EQ(Json(5).find("a"), nullptr);
}

// A hundred thousand keys in one object: quadratic work would take minutes.
TEST(Json, CostGrowsWithSizeNotItsSquare) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i)
    text += "\"key" + std::to_string(i) + "\":[{},1],";
  text.back() = '}';
  const Stopwatch watch;
  const Json json = parsed(text);
  EXPECT_EQ(json.size(), 100'000u);
  EXPECT_EQ(json.dump().size(), text.size());
  EXPECT_LT(watch.seconds(), 20.0);
}

TEST(ReadFile, NamesTheProblem) {
  EXPECT_EQ(read_file("/nonexistent/file", 10).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read_file("/tmp", 10).error().code, ErrorCode::kIo);
  const auto large = read_file("CMakeLists.txt", 10);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, ErrorCode::kLimit);
  EXPECT_EQ(large.error().where, "CMakeLists.txt");
}

}  // namespace
}  // namespace lockstep::io
