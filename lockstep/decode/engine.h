// SPDX-License-Identifier: Apache-2.0
// Steps many sequences at once: prefill in canonical chunks, plain decoding, and speculation with
// the model's own MTP head. The ids of a request depend on its prompt, sampling parameters and seed
// only: not on drafts, neighbours, chunk sizes or threads.
//
// One thread owns an engine. A step picks segments (decoding and verification first, then prefill
// up to a token budget), runs the target once over all rows, picks per row, accepts, commits or
// rewinds, and drafts for the next step.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/decode/accept.h"
#include "lockstep/decode/depth_policy.h"
#include "lockstep/decode/sampler.h"
#include "lockstep/model/model.h"

namespace lockstep::decode {

struct Request {
  std::vector<std::int32_t> prompt;  // token ids, not empty
  SamplingParams sampling;
  std::int64_t tokens_max = -1;        // of the answer; -1: to the end of the context
  std::vector<std::int32_t> stop_ids;  // end-of-turn ids; empty: none stops (ignore_eos)
  int draft_depth = kAutoDepth;        // 0..limits::kDraftDepthMax, or kAutoDepth
  int logprobs = -1;                   // alternatives per token; -1: no log-probabilities
  // When not empty, drafts are taken from here (by output index) instead of from the head, which
  // still runs at full cost. For parity runs and oracle measurements.
  std::vector<std::int32_t> scripted_drafts;
};

// What can be checked without the model: the cap, the draft depth, the log-probabilities.
Status validate(const Request& request);
// Refuses the first id outside [0, vocab_size).
Status check_token_ids(std::span<const std::int32_t> ids, std::int32_t vocab_size,
                       const std::string& where);

// Receives an answer while it grows. Called from Engine::step.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // One committed token that is no stop id. True ends the answer here (a stop string is complete).
  virtual bool on_token(std::int32_t token) = 0;
};

struct SpeculationStats {
  std::int64_t rounds = 0;   // steps that verified at least one draft
  std::int64_t drafted = 0;  // all that were computed
  std::int64_t accepted = 0;
  std::vector<std::int64_t> tried_per_depth;  // decisions: accept.h, Accepted::tried
  std::vector<std::int64_t> accepted_per_depth;
  double verify_s = 0;           // target passes of decoding steps, plain ones included
  double draft_s = 0;            // head passes
  double commit_s = 0;           // rewinding, and head entries from true hidden states
  double expert_union_mean = 0;  // distinct experts per layer and decoding step
};

enum class FinishReason : std::uint8_t { kStop, kLength, kCancelled, kError };

struct Outcome {
  FinishReason reason = FinishReason::kStop;
  bool stop_text = false;               // a stop string ended it
  std::vector<std::int32_t> token_ids;  // stop id included
  std::vector<Logprobs> logprobs;       // one per token when asked for
  std::int64_t prompt_tokens = 0;
  double prefill_s = 0;  // wall time of the steps in which the request's prompt was computed
  double decode_s = 0;   // of those in which it decoded
  SpeculationStats speculation;
  std::string error;  // for kError
};

struct EngineOptions {
  int sequences_max = 8;             // that are stepped together; the others wait
  std::int64_t prefill_chunk = 512;  // tokens of prompts per step; a multiple of 64
};

Status validate(const EngineOptions& options);

class Engine {
 public:
  using Id = std::int64_t;

  // `vocab_size`: tokens of the tokenizer; ids from there on are padding. `model` must outlive it.
  Engine(model::Model& model, std::int32_t vocab_size, const EngineOptions& options);
  ~Engine();

  // Checks the request. `sink` may be null; else it must live until the outcome is taken.
  Result<Id> submit(Request request, TokenSink* sink);
  // Ends a request at its last committed token.
  void cancel(Id id);
  // One step over all running sequences. False when nothing is left to do.
  bool step();
  // The outcome once a request has ended (then it is forgotten), else nothing.
  std::optional<Outcome> take_outcome(Id id);

  const CostTable& costs() const { return costs_; }
  int running() const { return static_cast<int>(running_.size()); }

 private:
  struct Sequence;
  struct StepPlan;

  // engine.cpp: the target.
  void admit();
  StepPlan plan_step();
  void pick_rows(const StepPlan& plan, const ops::Tensor& normed);
  void pick_and_commit(Sequence& sequence, std::span<const float> logits);
  void finish(Sequence& sequence, FinishReason reason);
  void retire_finished();

  // engine_draft.cpp: the head.
  void calibrate();
  void prime_prompts(const StepPlan& plan, const ops::Tensor& hidden);
  std::vector<Sequence*> committed_drafters(const StepPlan& plan) const;
  void choose_depths(std::span<Sequence* const> drafters);
  void park_pairs(Sequence& sequence, const ops::Tensor& hidden);
  void prime_and_draft(std::span<Sequence* const> drafters, std::int64_t context,
                       const ops::Tensor& hidden);
  void draft_chain(std::vector<Sequence*> sequences, std::vector<std::int32_t> ids,
                   ops::Tensor hidden);
  std::int32_t draft_pick(Sequence& sequence, std::span<const float> logits);

  model::Model& model_;
  ops::Backend& backend_;
  std::int32_t vocab_size_;
  EngineOptions options_;
  CostTable costs_;
  AcceptanceRecord acceptance_;
  Id next_id_ = 1;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::vector<std::pair<Id, Outcome>> outcomes_;
};

}  // namespace lockstep::decode
