// SPDX-License-Identifier: Apache-2.0
// From a row of logits to one token. The pick at an output index is a pure function of (logits,
// parameters, seed, index, history), so target and draft agree without talking to each other.
//
// Order: logit bias, penalties, temperature, top-k, top-p, min-p, draw. The draw is an exponential
// race (Gumbel-max) with Philox noise keyed by seed, output index and token id. Temperature 0 is
// arg-max after bias and penalties, lowest id at a tie. Padding rows of the vocabulary never win.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/result.h"

namespace lockstep::decode {

struct SamplingParams {
  float temperature = 0;         // 0: greedy
  int top_k = 0;                 // 0: all
  float top_p = 1;               // (0, 1]
  float min_p = 0;               // [0, 1)
  float presence_penalty = 0;    // of tokens in the output
  float frequency_penalty = 0;   // per occurrence in the output
  float repetition_penalty = 1;  // > 0; of tokens in prompt or output
  std::vector<std::pair<std::int32_t, float>> logit_bias{};
  std::uint64_t seed = 0;

  bool greedy() const { return temperature == 0; }
  bool has_penalties() const {
    return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1;
  }
};

// Checks ranges and finiteness; `vocab_size` bounds the ids of logit_bias.
Status validate(const SamplingParams& params, std::int32_t vocab_size);

// Counts of the tokens that penalties look at. push and pop are the mark and rewind of drafting.
class TokenHistory {
 public:
  TokenHistory() = default;
  TokenHistory(std::span<const std::int32_t> prompt, std::int32_t vocab_size);
  void push(std::int32_t token);
  void pop();
  std::span<const std::int32_t> output() const { return output_; }

  struct Count {
    std::int32_t token;
    std::int32_t in_prompt;
    std::int32_t in_output;
  };
  std::span<const Count> counts() const { return counts_; }  // of every token seen so far

 private:
  Count& count_of(std::int32_t token);
  std::vector<std::int32_t> slot_;  // [vocab] index into counts_ + 1; 0: not seen
  std::vector<Count> counts_;
  std::vector<std::int32_t> output_;
};

class Sampler {
 public:
  // Ids >= `vocab_size` are padding.
  Sampler(SamplingParams params, std::int32_t vocab_size);

  // The token at output index `index`. `logits` has at least vocab_size entries and is not changed.
  // Returns -1 when no finite logit is left (a damaged model).
  std::int32_t pick(std::span<const float> logits, std::uint64_t index,
                    const TokenHistory& history);

  const SamplingParams& params() const { return params_; }

 private:
  struct Candidate {
    float logit;
    std::int32_t token;
  };
  std::span<const float> adjust(std::span<const float> logits, const TokenHistory& history);
  void filter(std::span<const float> logits);
  std::int32_t race(std::uint64_t index) const;

  SamplingParams params_;
  std::int32_t vocab_size_;
  std::vector<float> adjusted_;
  std::vector<Candidate> candidates_;
};

// Arg-max of the first `count` logits, lowest index at a tie; -1 if none is finite.
std::int32_t argmax(std::span<const float> logits);

// log(sum(exp(logits))) in double; not finite when a logit is NaN or +infinity.
double log_sum_exp(std::span<const float> logits);

struct TokenLogprob {
  std::int32_t token;
  double logprob;
};

// log softmax over the first `vocab_size` unmodified logits: the chosen token's value and the `top`
// largest (descending, lower id first at a tie).
struct Logprobs {
  double chosen = 0;
  std::vector<TokenLogprob> top;
};
Logprobs logprobs(std::span<const float> logits, std::int32_t vocab_size, std::int32_t chosen,
                  int top);

}  // namespace lockstep::decode
