// SPDX-License-Identifier: Apache-2.0
// What engine.cpp and engine_draft.cpp share. Not installed.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/decode/engine.h"

namespace lockstep::decode {

struct Engine::Sequence {
  Sequence(Id id_in, Request request_in, TokenSink* sink_in, std::int32_t vocab_size,
           AcceptanceRecord* others);

  Id id;
  Request request;
  TokenSink* sink;
  Sampler sampler;
  TokenHistory history;
  DepthPolicy policy;
  std::unique_ptr<ops::SequenceState> state;
  Outcome outcome;
  bool finished = false;

  std::int64_t prompt_done = 0;      // prompt tokens that are in the state
  std::vector<std::int32_t> drafts;  // to be verified by the next step
  int next_depth = 0;

  // The current step: rows in the batch, and the picks that were committed from them.
  std::int64_t row_begin = 0;
  std::int64_t row_count = 0;
  std::int64_t pick_begin = 0;  // row of the first pick: committed[j] came from pick_begin + j
  std::vector<std::int32_t> committed;

  // Pairs not yet in the head's cache, kept while the policy is parked at depth 0.
  std::vector<std::int32_t> parked_ids;
  std::vector<float> parked_hidden;

  double union_sum = 0;
  std::int64_t decode_steps = 0;

  bool prompt_finished() const {
    return prompt_done == static_cast<std::int64_t>(request.prompt.size());
  }
  std::int64_t tokens_left() const {
    return request.tokens_max - static_cast<std::int64_t>(outcome.token_ids.size());
  }
  bool is_stop(std::int32_t token) const;
};

struct Engine::StepPlan {
  ops::Batch batch;
  std::vector<std::int32_t> ids;
  std::vector<Sequence*> decoders;    // all rows are picked from
  std::vector<Sequence*> prefillers;  // the last row is picked from once the prompt ends
  std::int64_t context = 0;           // longest of the decoders
};

}  // namespace lockstep::decode
