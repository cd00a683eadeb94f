// SPDX-License-Identifier: Apache-2.0
// The engine over the demo model: caps, stops, joins, cancels, forced drafts, and its checks of
// requests. What is compared is always a plain run alone.
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/decode/generate.h"

namespace lockstep::decode {
namespace {

using Ids = std::vector<std::int32_t>;

class EngineTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto opened = Runtime::open({.model_dir = "models/demo", .drafter_dir = {}, .backend = {}});
    ASSERT_TRUE(opened.ok()) << opened.error().to_string();
    runtime_ = std::move(opened).value().release();
  }
  static void TearDownTestSuite() {
    delete runtime_;
    runtime_ = nullptr;
  }

  static Ids prompt(const std::string& text) {
    GenerateRequest request;
    request.prompt = text;
    request.thinking = false;
    return prepare(*runtime_, request).value().request.prompt;
  }
  static Request request(int depth, std::int64_t tokens_max, SamplingParams sampling = {},
                         const std::string& text = "Explain speculative decoding.") {
    Request r;
    r.prompt = prompt(text);
    r.sampling = sampling;
    r.tokens_max = tokens_max;
    r.stop_ids = runtime_->stop_ids();
    r.draft_depth = depth;
    return r;
  }
  static Engine engine(int parallel = 1, std::int64_t chunk = 512) {
    return Engine(runtime_->model(), runtime_->tokenizer().size(),
                  {.sequences_max = parallel, .prefill_chunk = chunk});
  }
  static Outcome run(Request r, TokenSink* sink = nullptr) {
    Engine e = engine();
    const auto id = e.submit(std::move(r), sink).value();
    while (e.step()) {
    }
    return *e.take_outcome(id);
  }

  static Runtime* runtime_;
};
Runtime* EngineTest::runtime_ = nullptr;

TEST_F(EngineTest, ACapGivesThePrefixOfTheLongerAnswerAtEveryDepth) {
  for (const SamplingParams& sampling :
       {SamplingParams{}, SamplingParams{.temperature = 1, .seed = 7}}) {
    const Ids whole = run(request(0, 40, sampling)).token_ids;
    for (const int depth : {0, 1, 3, 8}) {
      for (std::int64_t n = 1; n <= 14; ++n) {
        const Outcome cut = run(request(depth, n, sampling));
        const auto length = std::min<std::size_t>(static_cast<std::size_t>(n), whole.size());
        EXPECT_EQ(cut.token_ids, Ids(whole.begin(), whole.begin() + static_cast<long>(length)));
      }
    }
  }
}

TEST_F(EngineTest, ForcedDraftsAreCountedAsTriedAndAccepted) {
  const Ids plain = run(request(0, 25)).token_ids;
  ASSERT_EQ(plain.size(), 25u);
  Request all = request(4, 25);
  all.scripted_drafts = plain;
  const Outcome accepted = run(all);
  EXPECT_EQ(accepted.token_ids, plain);
  // The first token comes from the prefill; then rounds of five, the last one of four.
  EXPECT_EQ(accepted.speculation.rounds, 5);
  EXPECT_EQ(accepted.speculation.accepted, 4 * 4 + 3);
  EXPECT_EQ(accepted.speculation.tried_per_depth, (std::vector<std::int64_t>{5, 5, 5, 4}));
  EXPECT_EQ(accepted.speculation.accepted_per_depth, (std::vector<std::int64_t>{5, 5, 5, 4}));

  Request none = request(2, 10);
  none.scripted_drafts = plain;
  for (std::int32_t& id : none.scripted_drafts)
    id = (id + 1) % 6000;
  const Outcome rejected = run(none);
  EXPECT_EQ(rejected.token_ids, Ids(plain.begin(), plain.begin() + 10));
  EXPECT_EQ(rejected.speculation.accepted, 0);
  EXPECT_EQ(rejected.speculation.tried_per_depth, (std::vector<std::int64_t>{8}));
}

TEST_F(EngineTest, StopStringsEndTheAnswerAcrossTokensAndDrafts) {
  GenerateRequest r;
  r.prompt = "Explain speculative decoding.";
  r.thinking = false;
  r.temperature = 0;
  r.draft_depth = 0;
  const std::string whole = generate(*runtime_, r)->answer.text;
  ASSERT_GT(whole.size(), 40u);
  for (const std::size_t at : {std::size_t{1}, std::size_t{9}, std::size_t{22}, whole.size() - 5}) {
    for (const int depth : {0, 1, 4, 8}) {
      r.stops = {whole.substr(at, 5)};
      r.draft_depth = depth;
      const auto result = generate(*runtime_, r);
      EXPECT_EQ(result->answer.text, whole.substr(0, whole.find(r.stops[0])));
      EXPECT_EQ(finish_reason(*result), "stop");
    }
  }
}

TEST_F(EngineTest, NeighboursThatJoinAndLeaveChangeNothing) {
  const std::vector<std::string> texts = {"Explain speculative decoding.", "Add 187 and 236.",
                                          "Tell me a little story about a gentle crow.",
                                          "What is the capital of France?"};
  std::map<std::size_t, Ids> plain;
  const auto make = [&](std::size_t i, int depth) {
    return request(depth, 10 + static_cast<std::int64_t>(i) * 7,
                   i % 2 == 0 ? SamplingParams{} : SamplingParams{.temperature = 1, .seed = i},
                   texts[i % texts.size()]);
  };
  for (std::size_t i = 0; i < 8; ++i)
    plain[i] = run(make(i, 0)).token_ids;
  Engine e = engine(3, 64);
  std::map<Engine::Id, std::size_t> open;
  for (std::size_t i = 0; i < 8; ++i) {
    open[e.submit(make(i, static_cast<int>(i % 5)), nullptr).value()] = i;
    for (std::size_t s = 0; s < i; ++s)
      e.step();
  }
  while (e.step()) {
  }
  for (const auto& [id, i] : open)
    EXPECT_EQ(e.take_outcome(id)->token_ids, plain[i]) << i;
}

TEST_F(EngineTest, CancelKeepsWhatWasCommittedAndFreesThePlace) {
  Engine e = engine(1);
  const auto first = e.submit(request(3, 1000), nullptr).value();
  const auto second = e.submit(request(0, 3), nullptr).value();
  for (int i = 0; i < 4; ++i)
    e.step();
  e.cancel(first);
  const Outcome cancelled = *e.take_outcome(first);
  EXPECT_EQ(cancelled.reason, FinishReason::kCancelled);
  EXPECT_GT(cancelled.token_ids.size(), 0u);
  EXPECT_FALSE(e.take_outcome(first).has_value());
  while (e.step()) {
  }
  EXPECT_EQ(e.take_outcome(second)->reason, FinishReason::kLength);
  e.cancel(second);  // long gone: nothing happens
}

TEST_F(EngineTest, LogprobsComeFromUnmodifiedLogitsAndAreTheSameAtEveryDepth) {
  std::vector<double> plain;
  for (const int depth : {0, 3}) {
    Request r = request(depth, 12, {.temperature = 0.7f, .presence_penalty = 1, .seed = 3});
    r.logprobs = 2;
    const Outcome outcome = run(r);
    ASSERT_EQ(outcome.logprobs.size(), outcome.token_ids.size());
    std::vector<double> chosen;
    for (const Logprobs& l : outcome.logprobs) {
      chosen.push_back(l.chosen);
      EXPECT_LE(l.chosen, l.top[0].logprob);
      EXPECT_LE(l.top[1].logprob, l.top[0].logprob);
    }
    if (depth == 0) {
      plain = chosen;
    } else {
      EXPECT_EQ(chosen, plain);
    }
  }
}

TEST_F(EngineTest, RequestsThatCannotBeHonouredAreRefusedWithTheirPlace) {
  Engine e = engine();
  const auto refused = [&](auto&& change) {
    Request r = request(0, 5);
    change(r);
    const auto id = e.submit(std::move(r), nullptr);
    EXPECT_FALSE(id.ok());
    return id.ok() ? std::string() : id.error().where;
  };
  EXPECT_EQ(refused([](Request& r) { r.prompt.clear(); }), "prompt");
  EXPECT_EQ(refused([](Request& r) { r.prompt[0] = -1; }), "prompt");
  EXPECT_EQ(refused([](Request& r) { r.prompt[0] = 6100; }), "prompt");
  EXPECT_EQ(refused([](Request& r) { r.prompt.assign(32768, 1); }), "prompt");
  EXPECT_EQ(refused([](Request& r) { r.tokens_max = 0; }), "max_tokens");
  EXPECT_EQ(refused([](Request& r) { r.draft_depth = 9; }), "draft_depth");
  EXPECT_EQ(refused([](Request& r) { r.logprobs = 1000; }), "logprobs");
  EXPECT_EQ(refused([](Request& r) { r.sampling.top_p = 0; }), "top_p");
  EXPECT_FALSE(e.step());
}

TEST_F(EngineTest, ChunksThatAreNoMultipleOfTheGrainAreRefused) {
  EXPECT_TRUE(validate(EngineOptions{.prefill_chunk = 64}).ok());
  for (const std::int64_t chunk : {-64, 0, 1, 63, 65, 100}) {
    EXPECT_FALSE(validate(EngineOptions{.prefill_chunk = chunk}).ok()) << chunk;
  }
  EXPECT_FALSE(validate(EngineOptions{.sequences_max = 0}).ok());
}

}  // namespace
}  // namespace lockstep::decode
