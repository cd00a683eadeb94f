// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/tokenizer.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/io/json.h"

namespace lockstep::text {
namespace {

using io::Json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kDemo = "models/demo";

const Tokenizer& demo() {
  static const Tokenizer tokenizer = Tokenizer::open(kDemo).value();
  return tokenizer;
}

std::vector<std::int32_t> ids_of(const Json& ids) {
  std::vector<std::int32_t> out;
  for (const Json& id : ids.as_array())
    out.push_back(static_cast<std::int32_t>(id.as_int()));
  return out;
}

// Cases written by the reference library: {text, ids, decoded, decoded_skip_special}.
TEST(Tokenizer, EqualsAllGoldenCases) {
  const Json cases = io::read_json_file("tests/golden/demo/tokenizer_cases.json").value();
  ASSERT_GE(cases.size(), 200u);
  for (const Json& golden : cases.as_array()) {
    const std::string& text = golden.find("text")->as_string();
    EXPECT_EQ(demo().encode(text, AddedTokens::kMatch).value(), ids_of(*golden.find("ids")))
        << text;
  }
}

TEST(Tokenizer, IgnoringAddedTokensChangesNothingWithoutTheirLiterals) {
  const Json cases = io::read_json_file("tests/golden/demo/tokenizer_cases.json").value();
  for (const Json& golden : cases.as_array()) {
    const std::string& text = golden.find("text")->as_string();
    const auto ids = demo().encode(text, AddedTokens::kIgnore).value();
    bool has_literal = false;
    for (const AddedToken& token : demo().added_tokens()) {
      has_literal |= text.find(token.content) != std::string::npos;
    }
    EXPECT_TRUE(has_literal || ids == ids_of(*golden.find("ids"))) << text;
    for (const std::int32_t id : ids)
      EXPECT_FALSE(demo().is_added(id)) << text;
  }
}

TEST(Tokenizer, KnowsItsTokens) {
  EXPECT_EQ(demo().size(), 6100);
  EXPECT_EQ(demo().added_tokens().size(), 26u);
  EXPECT_EQ(demo().find("<|im_end|>"), 6076);
  EXPECT_EQ(demo().find("</think>"), 6099);
  EXPECT_EQ(demo().find("Hello, this is no token"), std::nullopt);
  EXPECT_EQ(demo().token_bytes(6098), "<think>");
  EXPECT_EQ(demo().token_bytes(220), " ");
  EXPECT_EQ(demo().token_bytes(127), "\xc3");
  EXPECT_EQ(demo().token_bytes(-1), "");
  EXPECT_EQ(demo().token_bytes(6100), "");
  EXPECT_TRUE(demo().is_special(6076));
  EXPECT_FALSE(demo().is_special(6098));
  EXPECT_TRUE(demo().is_added(6098));
  EXPECT_FALSE(demo().is_added(6073));
  EXPECT_FALSE(demo().is_added(6100));
}

TEST(Tokenizer, EveryTokenIsFoundByItsBytes) {
  for (std::int32_t id = 0; id < demo().size(); ++id) {
    EXPECT_EQ(demo().find(demo().token_bytes(id)), id);
  }
}

TEST(Tokenizer, RefusesInvalidUtf8WithItsPlace) {
  const auto result = demo().encode("ab\xff", AddedTokens::kMatch);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(result.error().message, HasSubstr("byte 2"));
}

// A folder with a changed copy of the demo tokenizer.
class ChangedTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(dir_);
    tokenizer_ = io::read_json_file(std::string(kDemo) + "/tokenizer.json").value();
    config_ = io::read_json_file(std::string(kDemo) + "/tokenizer_config.json").value();
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  Json::Array& added() {
    for (auto& [key, value] : tokenizer_.as_object()) {
      if (key == "added_tokens") return value.as_array();
    }
    ADD_FAILURE();
    return tokenizer_.as_array();
  }
  Result<Tokenizer> open() {
    std::ofstream(dir_ / "tokenizer.json") << tokenizer_.dump();
    std::ofstream(dir_ / "tokenizer_config.json") << config_.dump();
    return Tokenizer::open(dir_.string());
  }
  void expect_refused(ErrorCode code, const std::string& message) {
    const auto result = open();
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, code);
    EXPECT_THAT(result.error().message, HasSubstr(message));
    EXPECT_THAT(result.error().where, HasSubstr("tokenizer.json"));
  }

  std::filesystem::path dir_;
  Json tokenizer_;
  Json config_;
};

TEST_F(ChangedTokenizer, TakesTokensThatOnlyTheConfigLists) {
  added().pop_back();
  added().pop_back();
  const auto result = open();
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->size(), 6100);
  EXPECT_EQ(result->find("<think>"), 6098);
  EXPECT_THAT(result->encode("<think>a</think>", AddedTokens::kMatch).value(),
              ElementsAre(6098, 64, 6099));
}

TEST_F(ChangedTokenizer, RefusesAMissingAddedTokenByTheFirstShiftedOne) {
  added().erase(added().begin() + 3);
  config_ = Json::object();
  expect_refused(ErrorCode::kInconsistent, "\"<|object_ref_end|>\" states id 6078");
}

TEST_F(ChangedTokenizer, RefusesSwappedIds) {
  added()[0].set("id", Json(6075));
  added()[1].set("id", Json(6074));
  config_ = Json::object();
  expect_refused(ErrorCode::kInconsistent, "\"<|im_start|>\" states id 6074");
}

TEST_F(ChangedTokenizer, RefusesAnIdOutOfRange) {
  added().back().set("id", Json(2'000'000'000));
  config_ = Json::object();
  expect_refused(ErrorCode::kInconsistent, "\"</think>\" states id 2000000000");
}

TEST_F(ChangedTokenizer, RefusesTwoTokensWithOneId) {
  Json copy = added().back();
  copy.set("content", Json("<other>"));
  added().push_back(copy);
  expect_refused(ErrorCode::kInconsistent, "6099");
}

TEST_F(ChangedTokenizer, RefusesADisagreeingConfig) {
  config_ =
      io::parse_json(R"({"added_tokens_decoder": {"6000": {"content": "<think>"}}})", "").value();
  expect_refused(ErrorCode::kInconsistent, "\"<think>\" has id 6098 here and 6000");
}

TEST_F(ChangedTokenizer, RefusesFlagsItWouldNotHonour) {
  added()[2].set("lstrip", Json(true));
  expect_refused(ErrorCode::kUnsupported, "<|im_end|>");
}

TEST_F(ChangedTokenizer, RefusesAnotherDecoder) {
  tokenizer_.set("decoder", io::parse_json(R"({"type": "Metaspace"})", "").value());
  expect_refused(ErrorCode::kUnsupported, "Metaspace");
}

TEST_F(ChangedTokenizer, RefusesAnHugeVocabularyId) {
  for (auto& [key, value] : tokenizer_.as_object()) {
    if (key != "model") continue;
    for (auto& [name, vocab] : value.as_object()) {
      if (name == "vocab") vocab.as_object()[5].second = Json(4'000'000'000u);
    }
  }
  added().clear();
  config_ = Json::object();
  expect_refused(ErrorCode::kLimit, "4000000000");
}

TEST_F(ChangedTokenizer, SaysWhatIsWrongWithAConfigEntry) {
  config_ = io::parse_json(R"({"added_tokens_decoder": {"x": {"content": "y"}}})", "").value();
  const auto result = open();
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().to_string(), HasSubstr("added_tokens_decoder[\"x\"]"));
}

TEST(TokenizerFiles, MissingOrBrokenFilesAreErrors) {
  EXPECT_EQ(Tokenizer::open("no/such/folder").error().code, ErrorCode::kNotFound);
  const auto dir = std::filesystem::path(testing::TempDir()) / "broken_tokenizer";
  std::filesystem::create_directories(dir);
  for (const char* text : {"", "{", "[]", "{}", "{\"model\":{\"type\":\"BPE\"}}", "\xff"}) {
    std::ofstream(dir / "tokenizer.json") << text;
    EXPECT_FALSE(Tokenizer::open(dir.string()).ok()) << text;
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace lockstep::text
