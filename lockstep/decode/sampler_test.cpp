// SPDX-License-Identifier: Apache-2.0
#include "lockstep/decode/sampler.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <vector>

namespace lockstep::decode {
namespace {

using Logits = std::vector<float>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::int32_t pick(const SamplingParams& params, const Logits& logits, std::uint64_t index = 0,
                  const TokenHistory& history = {}) {
  return Sampler(params, static_cast<std::int32_t>(logits.size())).pick(logits, index, history);
}

TEST(Argmax, LowestIndexAtATieAndEveryLength) {
  for (std::size_t n = 1; n < 70; ++n) {
    for (std::size_t at = 0; at < n; ++at) {
      Logits logits(n, -1.0f);
      logits[at] = 2.0f;
      EXPECT_EQ(argmax(logits), static_cast<std::int32_t>(at));
      logits[n - 1] = 2.0f;
      EXPECT_EQ(argmax(logits), static_cast<std::int32_t>(at));
    }
  }
}

TEST(Argmax, NothingFiniteIsNoToken) {
  EXPECT_EQ(argmax(Logits{kNan, kNan}), -1);
  EXPECT_EQ(argmax(Logits{-kInf, -kInf}), -1);
  EXPECT_EQ(argmax(Logits{kInf, 0}), -1);
  EXPECT_EQ(argmax(Logits{kNan, 1, 0}), 1);
}

TEST(Sampler, PaddingRowsNeverWin) {
  const Logits logits = {0, 1, 50, 60};
  Sampler greedy({}, 2);
  EXPECT_EQ(greedy.pick(logits, 0, {}), 1);
  Sampler drawn({.temperature = 5, .seed = 3}, 2);
  for (std::uint64_t i = 0; i < 500; ++i)
    EXPECT_LT(drawn.pick(logits, i, {}), 2);
}

TEST(Sampler, BiasAndPenaltiesActOnGreedyToo) {
  EXPECT_EQ(pick({.logit_bias = {{2, 10.0f}}}, {1, 3, 0}), 2);
  const std::vector<std::int32_t> prompt = {1};
  TokenHistory history(prompt, 3);
  EXPECT_EQ(pick({.repetition_penalty = 2}, {2, 3, 0}, 0, history), 0);  // 3 / 2 < 2
  EXPECT_EQ(pick({.presence_penalty = 5}, {2, 3, 0}, 0, history), 1);  // the prompt does not count
  history.push(1);
  EXPECT_EQ(pick({.presence_penalty = 5}, {2, 3, 0}, 0, history), 0);
  history.pop();
  EXPECT_EQ(pick({.presence_penalty = 5}, {2, 3, 0}, 0, history), 1);
}

TEST(Sampler, RepetitionPenaltyMultipliesNegativeLogits) {
  const std::vector<std::int32_t> prompt = {0};
  EXPECT_EQ(pick({.repetition_penalty = 2}, {-1, -1.5f}, 0, TokenHistory(prompt, 2)), 1);
}

TEST(Sampler, FrequencyPenaltyGrowsWithEachOccurrence) {
  TokenHistory history({}, 2);
  const SamplingParams params{.frequency_penalty = 1};
  history.push(0);
  EXPECT_EQ(pick(params, {3, 0.5f}, 0, history), 0);
  history.push(0);
  history.push(0);
  EXPECT_EQ(pick(params, {3, 0.5f}, 0, history), 1);
}

TEST(Sampler, FiltersKeepWhatTheirDefinitionSays) {
  // Probabilities at temperature 1: .5, .25, .125, .125.
  const Logits logits = {std::log(4.0f), std::log(2.0f), 0, 0};
  const auto drawn = [&](SamplingParams params) {
    std::map<std::int32_t, int> counts;
    params.temperature = 1;
    for (params.seed = 0; params.seed < 400; ++params.seed)
      ++counts[pick(params, logits)];
    return counts;
  };
  EXPECT_EQ(drawn({.top_k = 1}).size(), 1u);
  EXPECT_EQ(drawn({.top_k = 2}).size(), 2u);
  EXPECT_EQ(drawn({.top_k = 3}).count(3), 0u);  // tie: the lower id stays
  EXPECT_EQ(drawn({.top_p = 0.4f}).size(), 1u);
  EXPECT_EQ(drawn({.top_p = 0.6f}).size(), 2u);
  EXPECT_EQ(drawn({.top_p = 1.0f}).size(), 4u);
  EXPECT_EQ(drawn({.min_p = 0.3f}).size(), 2u);  // .125 / .5 = .25 falls below
  EXPECT_EQ(drawn({.min_p = 0.2f}).size(), 4u);
}

TEST(Sampler, DrawsFollowTheSoftmax) {
  const Logits logits = {std::log(4.0f), std::log(2.0f), 0, 0};
  Sampler sampler({.temperature = 1, .seed = 42}, 4);
  constexpr int kDraws = 20000;
  std::vector<int> counts(4, 0);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    ++counts[static_cast<std::size_t>(sampler.pick(logits, i, {}))];
  }
  const double expected[] = {.5, .25, .125, .125};
  for (std::size_t t = 0; t < 4; ++t) {
    const double sigma = std::sqrt(kDraws * expected[t] * (1 - expected[t]));
    EXPECT_NEAR(counts[t], kDraws * expected[t], 4 * sigma) << t;
  }
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  const Logits logits = {1, 0};
  const auto first = [&](float temperature) {
    Sampler sampler({.temperature = temperature, .seed = 1}, 2);
    int count = 0;
    for (std::uint64_t i = 0; i < 4000; ++i)
      count += sampler.pick(logits, i, {}) == 0 ? 1 : 0;
    return count / 4000.0;
  };
  // Binomial standard error at 4000 draws is below .008.
  EXPECT_NEAR(first(1.0f), 1 / (1 + std::exp(-1.0)), 0.032);
  EXPECT_NEAR(first(0.25f), 1 / (1 + std::exp(-4.0)), 0.032);
}

TEST(Sampler, APickDependsOnSeedAndIndexOnly) {
  Logits logits(1000);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = std::sin(static_cast<float>(i));
  const SamplingParams params{.temperature = 1, .seed = 9};
  Sampler a(params, 1000), b(params, 1000);
  std::vector<std::int32_t> forward, backward;
  for (std::uint64_t i = 0; i < 50; ++i)
    forward.push_back(a.pick(logits, i, {}));
  for (std::uint64_t i = 50; i-- > 0;)
    backward.insert(backward.begin(), b.pick(logits, i, {}));
  EXPECT_EQ(forward, backward);
  Sampler other({.temperature = 1, .seed = 10}, 1000);
  std::vector<std::int32_t> different;
  for (std::uint64_t i = 0; i < 50; ++i)
    different.push_back(other.pick(logits, i, {}));
  EXPECT_NE(forward, different);
}

TEST(Sampler, SkippingHopelessTokensChangesNothing) {
  // The race with its early exit against the plain arg-max of logit + noise, by way of a bias that
  // forces every token to be looked at: adding a constant to all logits must not change the pick.
  Logits logits(300), shifted(300);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>((i * 37) % 101) * 0.5f;
    shifted[i] = logits[i] + 64.0f;  // exact in float: multiples of one half below 128
  }
  Sampler sampler({.temperature = 1, .seed = 5}, 300);
  for (std::uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(sampler.pick(logits, i, {}), sampler.pick(shifted, i, {}));
  }
}

TEST(Sampler, TheSmallestTemperaturesAreGreedy) {
  for (const float temperature : {1e-45f, 1e-40f, 1e-38f, 1e-30f, 1e-6f}) {
    for (std::uint64_t index = 0; index < 20; ++index) {
      EXPECT_EQ(pick({.temperature = temperature, .seed = 1}, {-40, 30, 29.5f, 12}, index), 1);
      EXPECT_EQ(pick({.temperature = temperature, .top_p = 0.9f, .seed = 1}, {-2, -1, -3}, index),
                1);
    }
  }
}

TEST(Sampler, DamagedLogitsGiveNoToken) {
  EXPECT_EQ(pick({}, {kNan, kNan}), -1);
  EXPECT_EQ(pick({.temperature = 1}, {kNan, kNan}), -1);
  EXPECT_EQ(pick({.temperature = 1}, {kNan, 0}), 1);
}

TEST(Sampler, RangesAreChecked) {
  EXPECT_TRUE(validate({}, 10).ok());
  EXPECT_FALSE(validate({.temperature = -1}, 10).ok());
  EXPECT_FALSE(validate({.temperature = kNan}, 10).ok());
  EXPECT_FALSE(validate({.top_k = -1}, 10).ok());
  EXPECT_FALSE(validate({.top_p = 0}, 10).ok());
  EXPECT_FALSE(validate({.top_p = 1.5f}, 10).ok());
  EXPECT_FALSE(validate({.min_p = 1}, 10).ok());
  EXPECT_FALSE(validate({.repetition_penalty = 0}, 10).ok());
  EXPECT_FALSE(validate({.logit_bias = {{10, 1.0f}}}, 10).ok());
  EXPECT_FALSE(validate({.logit_bias = {{1, kInf}}}, 10).ok());
}

TEST(Logprobs, AreTheLogOfTheSoftmaxWithoutPadding) {
  const Logits logits = {std::log(4.0f), std::log(2.0f), std::log(2.0f), 90};
  const Logprobs result = logprobs(logits, 3, 1, 2);
  // Float logits carry an error of half an ulp of log 4, below 1e-7; derived bound 1e-6.
  EXPECT_NEAR(result.chosen, std::log(0.25), 1e-6);
  ASSERT_EQ(result.top.size(), 2u);
  EXPECT_EQ(result.top[0].token, 0);
  EXPECT_NEAR(result.top[0].logprob, std::log(0.5), 1e-6);  // derived bound as above
  EXPECT_EQ(result.top[1].token, 1);                        // tie: the lower id
}

}  // namespace
}  // namespace lockstep::decode
