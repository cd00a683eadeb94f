// SPDX-License-Identifier: Apache-2.0
#include "lockstep/decode/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/base/limits.h"
#include "lockstep/base/philox.h"

namespace lockstep::decode {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

Error out_of_range(const char* name, double value, const char* allowed) {
  return {ErrorCode::kInvalidArgument, "is " + std::to_string(value) + "; allowed is " + allowed,
          name};
}

// Gumbel noise of one token at one output index.
float gumbel(std::uint64_t seed, std::uint64_t index, std::int32_t token) {
  const auto words =
      philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                  static_cast<std::uint32_t>(token), 0},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return static_cast<float>(-std::log(-std::log(static_cast<double>(uniform_open(words[0])))));
}

// No draw exceeds the noise of the largest uniform number, 1 - 2^-24: -log(2^-24) = 16.64.
constexpr float kGumbelMax = 16.7f;

bool better(float logit_a, std::int32_t token_a, float logit_b, std::int32_t token_b) {
  return logit_a != logit_b ? logit_a > logit_b : token_a < token_b;
}

}  // namespace

Status validate(const SamplingParams& p, std::int32_t vocab_size) {
  // Written so that NaN fails every test.
  if (!(p.temperature >= 0 && p.temperature <= 100)) {
    return out_of_range("temperature", p.temperature, "0 to 100");
  }
  if (p.top_k < 0) return out_of_range("top_k", p.top_k, "0 (all) or more");
  if (!(p.top_p > 0 && p.top_p <= 1)) return out_of_range("top_p", p.top_p, "above 0, up to 1");
  if (!(p.min_p >= 0 && p.min_p < 1)) return out_of_range("min_p", p.min_p, "0 to below 1");
  if (!(p.repetition_penalty > 0 && p.repetition_penalty <= 100)) {
    return out_of_range("repetition_penalty", p.repetition_penalty, "above 0, up to 100");
  }
  if (!(std::fabs(p.presence_penalty) <= 100)) {
    return out_of_range("presence_penalty", p.presence_penalty, "-100 to 100");
  }
  if (!(std::fabs(p.frequency_penalty) <= 100)) {
    return out_of_range("frequency_penalty", p.frequency_penalty, "-100 to 100");
  }
  if (p.logit_bias.size() > limits::kLogitBiasMax) {
    return Error{ErrorCode::kLimit,
                 "has " + std::to_string(p.logit_bias.size()) + " entries; at most " +
                     std::to_string(limits::kLogitBiasMax) + " are allowed",
                 "logit_bias"};
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return Error{ErrorCode::kInvalidArgument,
                   "token id " + std::to_string(token) + " is not in the vocabulary of " +
                       std::to_string(vocab_size) + " tokens",
                   "logit_bias"};
    }
    if (!(std::fabs(bias) <= 1e6f)) return out_of_range("logit_bias", bias, "-1e6 to 1e6");
  }
  return {};
}

TokenHistory::TokenHistory(std::span<const std::int32_t> prompt, std::int32_t vocab_size)
    : slot_(static_cast<std::size_t>(vocab_size), 0) {
  for (const std::int32_t token : prompt) {
    if (token < vocab_size) ++count_of(token).in_prompt;
  }
}

TokenHistory::Count& TokenHistory::count_of(std::int32_t token) {
  std::int32_t& slot = slot_[static_cast<std::size_t>(token)];
  if (slot == 0) {
    counts_.push_back({token, 0, 0});
    slot = static_cast<std::int32_t>(counts_.size());
  }
  return counts_[static_cast<std::size_t>(slot - 1)];
}

void TokenHistory::push(std::int32_t token) {
  ++count_of(token).in_output;
  output_.push_back(token);
}

void TokenHistory::pop() {
  CHECK(!output_.empty());
  --count_of(output_.back()).in_output;
  output_.pop_back();
}

std::int32_t argmax(std::span<const float> logits) {
  // Sixteen independent maxima first: the compiler vectorises this, and the order does not matter.
  constexpr std::size_t kLanes = 16;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, kNegativeInfinity);
  const std::size_t whole = logits.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      lanes[l] = logits[i + l] > lanes[l] ? logits[i + l] : lanes[l];
    }
  }
  float best = *std::max_element(lanes, lanes + kLanes);
  for (std::size_t i = whole; i < logits.size(); ++i)
    best = logits[i] > best ? logits[i] : best;
  if (!std::isfinite(best)) return -1;
  const auto found = std::find(logits.begin(), logits.end(), best);
  return static_cast<std::int32_t>(found - logits.begin());
}

Sampler::Sampler(SamplingParams params, std::int32_t vocab_size)
    : params_(std::move(params)), vocab_size_(vocab_size) {}

std::span<const float> Sampler::adjust(std::span<const float> logits, const TokenHistory& history) {
  if (params_.logit_bias.empty() && !params_.has_penalties()) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : params_.logit_bias) {
    adjusted_[static_cast<std::size_t>(token)] += bias;
  }
  if (!params_.has_penalties()) return adjusted_;
  for (const TokenHistory::Count& c : history.counts()) {
    float& logit = adjusted_[static_cast<std::size_t>(c.token)];
    if (c.in_prompt + c.in_output > 0) {
      const float r = params_.repetition_penalty;
      logit = logit > 0 ? logit / r : logit * r;
    }
    if (c.in_output > 0) {
      logit -= params_.presence_penalty;
      logit -= params_.frequency_penalty * static_cast<float>(c.in_output);
    }
  }
  return adjusted_;
}

void Sampler::filter(std::span<const float> logits) {
  candidates_.clear();
  const std::int32_t best = argmax(logits);
  if (best < 0) return;
  // Relative to the largest, so that even the smallest temperature can't overflow it.
  const float largest = logits[static_cast<std::size_t>(best)];
  for (std::int32_t t = 0; t < vocab_size_; ++t) {
    const float scaled = (logits[static_cast<std::size_t>(t)] - largest) / params_.temperature;
    if (std::isfinite(scaled)) candidates_.push_back({scaled, t});
  }
  const auto order = [](const Candidate& a, const Candidate& b) {
    return better(a.logit, a.token, b.logit, b.token);
  };
  const auto top_k = static_cast<std::size_t>(params_.top_k);
  if (top_k > 0 && top_k < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params_.top_k, candidates_.end(),
                     order);
    candidates_.resize(top_k);
  }
  if (candidates_.empty() || (params_.top_p >= 1 && params_.min_p <= 0)) return;

  std::sort(candidates_.begin(), candidates_.end(), order);
  const double max_logit = candidates_.front().logit;
  double total = 0;
  for (const Candidate& c : candidates_)
    total += std::exp(c.logit - max_logit);
  std::size_t keep = candidates_.size();
  if (params_.top_p < 1) {
    double cumulative = 0;
    for (std::size_t i = 0; i < keep; ++i) {
      cumulative += std::exp(candidates_[i].logit - max_logit) / total;
      if (cumulative >= static_cast<double>(params_.top_p)) keep = i + 1;
    }
  }
  if (params_.min_p > 0) {
    // Relative to the most probable token, so that no renormalisation enters.
    const double floor = max_logit + std::log(static_cast<double>(params_.min_p));
    while (keep > 1 && candidates_[keep - 1].logit < floor)
      --keep;
  }
  candidates_.resize(keep);
}

std::int32_t Sampler::race(std::uint64_t index) const {
  if (candidates_.empty()) return -1;
  // Start with the largest logit: most others then fall short even with the largest noise.
  const auto first = std::max_element(candidates_.begin(), candidates_.end(),
                                      [](const Candidate& a, const Candidate& b) {
                                        return better(b.logit, b.token, a.logit, a.token);
                                      });
  float best = first->logit + gumbel(params_.seed, index, first->token);
  std::int32_t winner = first->token;
  for (const Candidate& c : candidates_) {
    if (c.token == first->token || c.logit + kGumbelMax < best) continue;
    const float value = c.logit + gumbel(params_.seed, index, c.token);
    if (better(value, c.token, best, winner)) {
      best = value;
      winner = c.token;
    }
  }
  return winner;
}

std::int32_t Sampler::pick(std::span<const float> logits, std::uint64_t index,
                           const TokenHistory& history) {
  CHECK(static_cast<std::int64_t>(logits.size()) >= vocab_size_);
  const std::span<const float> adjusted =
      adjust(logits.first(static_cast<std::size_t>(vocab_size_)), history);
  if (params_.greedy()) return argmax(adjusted);
  filter(adjusted);
  return race(index);
}

double log_sum_exp(std::span<const float> logits) {
  const double max_logit = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float x : logits)
    total += std::exp(static_cast<double>(x) - max_logit);
  return max_logit + std::log(total);
}

Logprobs logprobs(std::span<const float> logits, std::int32_t vocab_size, std::int32_t chosen,
                  int top) {
  const auto row = logits.first(static_cast<std::size_t>(vocab_size));
  const double log_total = log_sum_exp(row);
  const auto value = [&](std::int32_t token) {
    return static_cast<double>(row[static_cast<std::size_t>(token)]) - log_total;
  };

  Logprobs result{.chosen = value(chosen), .top = {}};
  std::vector<std::int32_t> ids(row.size());
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(i);
  const auto count =
      static_cast<std::ptrdiff_t>(std::min(ids.size(), static_cast<std::size_t>(std::max(0, top))));
  std::partial_sort(
      ids.begin(), ids.begin() + count, ids.end(), [&](std::int32_t a, std::int32_t b) {
        return better(row[static_cast<std::size_t>(a)], a, row[static_cast<std::size_t>(b)], b);
      });
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    result.top.push_back(
        {ids[static_cast<std::size_t>(i)], value(ids[static_cast<std::size_t>(i)])});
  }
  return result;
}

}  // namespace lockstep::decode
