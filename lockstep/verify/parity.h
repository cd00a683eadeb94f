// SPDX-License-Identifier: Apache-2.0
// The contract, run: the same requests under every condition that must not matter (draft depth,
// forced drafts, neighbours, chunk size, threads) against a plain run alone. Token ids are
// compared, and the log-probabilities of the chosen tokens bit for bit, which shows a difference
// long before it turns a token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/decode/engine.h"
#include "lockstep/io/json.h"

namespace lockstep::verify {

struct ParityOptions {
  std::vector<int> depths = {0, 1, 2, 3, 4};
  std::int64_t tokens_per_prompt = 48;
  std::int64_t tokens_total = 0;  // repeat with further seeds until so many are compared; 0: once
  std::uint64_t seed = 1;         // of the runs' seeds and the random batches
  bool keep_going = false;        // past the first difference
};

// One opened model; several of the same artifact differ in thread count.
struct ParitySubject {
  std::string label;  // "2 threads"
  model::Model* model = nullptr;
  std::int32_t vocab_size = 0;
  std::vector<std::int32_t> stop_ids;
};

struct ParityDifference {
  std::string condition;   // "depth 3", "batch of 5 with joins", ...
  std::size_t prompt = 0;  // index
  std::string sampling;    // "greedy", "temperature 1", ...
  std::uint64_t seed = 0;
  std::size_t token = 0;       // output index of the first difference
  std::int32_t expected = -1;  // -1: no token there
  std::int32_t found = -1;
  bool logprob_only = false;  // same id, other bits
};

struct ParityReport {
  std::int64_t tokens_compared = 0;
  std::vector<ParityDifference> differences;
  struct Condition {
    std::string name;
    std::int64_t tokens = 0;
  };
  std::vector<Condition> conditions;
  std::int64_t drafts_tried = 0;
  std::int64_t drafts_accepted = 0;
};

// `subjects[0]` makes the plain runs. `progress` may be null; returning false cancels.
Result<ParityReport> run_parity(std::span<const ParitySubject> subjects,
                                std::span<const std::vector<std::int32_t>> prompts,
                                const ParityOptions& options,
                                const std::function<bool(const ParityReport&)>& progress);

io::Json to_json(const ParityReport& report);

}  // namespace lockstep::verify
