// SPDX-License-Identifier: Apache-2.0
// How well a model predicts a text, and how far two models are apart on it.
//
// A text is cut into windows of consecutive tokens. Each window starts from a fresh state with
// nothing in front, and runs as canonical prefill. The first token of a window is not scored; every
// later one is a position. Distributions are softmax over the real vocabulary (rows from
// `vocab_size` on are padding), in double.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/model/model.h"

namespace lockstep::eval {

struct ScoreOptions {
  std::int64_t window = 512;  // tokens; 2 or more
  bool keep_positions = false;
};

// One scored token. Units are nats.
struct Position {
  std::int64_t index = 0;  // of the token in the text
  double logprob = 0;      // of the token, given the window before it
  double divergence = 0;   // KL(reference || model) of the distributions it was predicted from
  bool top1_equal = true;  // both have the same most probable token
};

// Sums over positions, so that scores of several texts add up.
struct Score {
  std::int64_t tokens = 0;  // positions
  double nll_sum = 0;       // of minus log-probabilities
  double kl_sum = 0;
  double kl_max = 0;
  std::int64_t top1_equal = 0;
  std::vector<Position> positions;  // with keep_positions

  // Means over positions; at least one must be there.
  double nll() const { return nll_sum / static_cast<double>(tokens); }
  double perplexity() const;  // exp(nll)
  double kl_mean() const { return kl_sum / static_cast<double>(tokens); }
  double top1_agreement() const {
    return static_cast<double>(top1_equal) / static_cast<double>(tokens);
  }
  void add(const Score& other);  // all but `positions`
};

// Scores `ids` by `model`; `reference` is null, or a second model with the same vocabulary, on a
// back end of its own. `progress` gets the tokens done so far, may be null; false cancels. Errors:
// kInvalidArgument for an id outside the vocabulary, a window that is too short, or a text without
// any position; kLimit for a window beyond the context; kInconsistent for logits that are not
// finite.
Result<Score> score(const model::Model& model, const model::Model* reference,
                    std::int32_t vocab_size, std::span<const std::int32_t> ids,
                    const ScoreOptions& options,
                    const std::function<bool(std::int64_t)>& progress = nullptr);

}  // namespace lockstep::eval
