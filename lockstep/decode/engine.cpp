// SPDX-License-Identifier: Apache-2.0
#include "lockstep/decode/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/limits.h"
#include "lockstep/decode/engine_internal.h"

namespace lockstep::decode {
namespace {

Status check_prompt(const Request& request, const spec::TextConfig& config,
                    std::int32_t vocab_size) {
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length == 0) {
    return Error{ErrorCode::kInvalidArgument, "is empty; give at least one token", "prompt"};
  }
  if (length >= config.context_tokens_max) {
    return Error{ErrorCode::kLimit,
                 "has " + std::to_string(length) + " tokens, and the model's context holds " +
                     std::to_string(config.context_tokens_max) +
                     " including the answer; shorten the prompt",
                 "prompt"};
  }
  return check_token_ids(request.prompt, vocab_size, "prompt");
}

Status check_request(const Request& request, const spec::TextConfig& config,
                     std::int32_t vocab_size) {
  LOCKSTEP_TRY_STATUS(check_prompt(request, config, vocab_size));
  LOCKSTEP_TRY_STATUS(validate(request.sampling, vocab_size));
  return validate(request);
}

}  // namespace

Status validate(const Request& request) {
  if (request.tokens_max == 0 || request.tokens_max < -1) {
    return Error{ErrorCode::kInvalidArgument,
                 "is " + std::to_string(request.tokens_max) +
                     "; give 1 or more, or leave it out for the rest of the context",
                 "max_tokens"};
  }
  if (request.draft_depth < kAutoDepth || request.draft_depth > limits::kDraftDepthMax) {
    return Error{ErrorCode::kInvalidArgument,
                 "is " + std::to_string(request.draft_depth) + "; give auto or 0 to " +
                     std::to_string(limits::kDraftDepthMax),
                 "draft_depth"};
  }
  if (request.logprobs < -1 || request.logprobs > limits::kLogprobsMax) {
    return Error{ErrorCode::kInvalidArgument,
                 "is " + std::to_string(request.logprobs) + "; give 0 to " +
                     std::to_string(limits::kLogprobsMax),
                 "logprobs"};
  }
  return {};
}

Status check_token_ids(std::span<const std::int32_t> ids, std::int32_t vocab_size,
                       const std::string& where) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return Error{ErrorCode::kInvalidArgument,
                   "token id " + std::to_string(ids[i]) + " at index " + std::to_string(i) +
                       " is not in the vocabulary of " + std::to_string(vocab_size) + " tokens",
                   where};
    }
  }
  return {};
}

Status validate(const EngineOptions& options) {
  if (options.sequences_max < 1 || options.sequences_max > limits::kSequencesMax) {
    return Error{ErrorCode::kInvalidArgument,
                 "is " + std::to_string(options.sequences_max) + "; give 1 to " +
                     std::to_string(limits::kSequencesMax),
                 "parallel"};
  }
  if (options.prefill_chunk < limits::kChunkGrain ||
      options.prefill_chunk % limits::kChunkGrain != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "is " + std::to_string(options.prefill_chunk) +
                     "; prompts are computed in chunks that are multiples of " +
                     std::to_string(limits::kChunkGrain),
                 "prefill_chunk"};
  }
  return {};
}

Engine::Sequence::Sequence(Id id_in, Request request_in, TokenSink* sink_in,
                           std::int32_t vocab_size, AcceptanceRecord* others)
    : id(id_in),
      request(std::move(request_in)),
      sink(sink_in),
      sampler(request.sampling, vocab_size),
      history(request.prompt, vocab_size),
      policy(request.draft_depth, others) {
  outcome.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  outcome.speculation.tried_per_depth.resize(limits::kDraftDepthMax);
  outcome.speculation.accepted_per_depth.resize(limits::kDraftDepthMax);
}

bool Engine::Sequence::is_stop(std::int32_t token) const {
  return std::find(request.stop_ids.begin(), request.stop_ids.end(), token) !=
         request.stop_ids.end();
}

Engine::Engine(model::Model& model, std::int32_t vocab_size, const EngineOptions& options)
    : model_(model), backend_(model.backend()), vocab_size_(vocab_size), options_(options) {
  CHECK(validate(options).ok());
  CHECK(vocab_size > 0 && vocab_size <= model.config().vocab_rows);
}

Engine::~Engine() = default;

Result<Engine::Id> Engine::submit(Request request, TokenSink* sink) {
  LOCKSTEP_TRY_STATUS(check_request(request, model_.config(), vocab_size_));
  const std::int64_t room =
      model_.config().context_tokens_max - static_cast<std::int64_t>(request.prompt.size());
  if (request.tokens_max < 0 || request.tokens_max > room) request.tokens_max = room;
  if (!model_.has_mtp()) request.draft_depth = 0;
  if (request.draft_depth == kAutoDepth && costs_.empty()) calibrate();
  const Id id = next_id_++;
  waiting_.push_back(
      std::make_unique<Sequence>(id, std::move(request), sink, vocab_size_, &acceptance_));
  return id;
}

void Engine::cancel(Id id) {
  for (auto& sequence : waiting_) {
    if (sequence->id == id) finish(*sequence, FinishReason::kCancelled);
  }
  for (auto& sequence : running_) {
    if (sequence->id == id) finish(*sequence, FinishReason::kCancelled);
  }
  retire_finished();
}

std::optional<Outcome> Engine::take_outcome(Id id) {
  const auto found = std::find_if(outcomes_.begin(), outcomes_.end(),
                                  [id](const auto& entry) { return entry.first == id; });
  if (found == outcomes_.end()) return std::nullopt;
  Outcome outcome = std::move(found->second);
  outcomes_.erase(found);
  return outcome;
}

void Engine::admit() {
  while (!waiting_.empty() && static_cast<int>(running_.size()) < options_.sequences_max) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    running_.back()->state = model_.make_state();
  }
}

Engine::StepPlan Engine::plan_step() {
  StepPlan plan;
  const auto add = [&](Sequence& s, ops::Segment segment) {
    segment.position = s.state->position();
    segment.state = s.state.get();
    s.row_begin = plan.batch.rows;
    s.row_count = segment.row_count;
    s.committed.clear();
    model::append_text_segment(plan.batch, segment);
  };
  for (auto& s : running_) {
    if (!s->prompt_finished()) continue;
    add(*s, {.cls = ops::SegmentClass::kStep,
             .row_count = static_cast<std::int64_t>(s->drafts.size()) + 1,
             .speculative = !s->drafts.empty()});
    plan.ids.push_back(s->outcome.token_ids.back());
    plan.ids.insert(plan.ids.end(), s->drafts.begin(), s->drafts.end());
    plan.decoders.push_back(s.get());
    plan.context = std::max(plan.context, s->state->position());
  }
  std::int64_t budget = options_.prefill_chunk;
  for (auto& s : running_) {
    if (s->prompt_finished() || budget < limits::kChunkGrain) continue;
    const std::int64_t left = s->outcome.prompt_tokens - s->prompt_done;
    // Ends at a multiple of the grain or at the prompt's end, never in between.
    const std::int64_t rows = std::min(left, budget / limits::kChunkGrain * limits::kChunkGrain);
    add(*s, {.cls = ops::SegmentClass::kPrefill, .row_count = rows});
    const auto from = s->request.prompt.begin() + s->prompt_done;
    plan.ids.insert(plan.ids.end(), from, from + rows);
    plan.prefillers.push_back(s.get());
    s->prompt_done += rows;
    budget -= rows;
  }
  return plan;
}

bool Engine::step() {
  admit();
  if (running_.empty()) return false;
  StepPlan plan = plan_step();
  backend_.reset_scratch();

  Stopwatch watch;
  const model::Hidden hidden = model_.forward(plan.batch, plan.ids);
  pick_rows(plan, hidden.normed);
  const double verify_s = watch.seconds();
  for (Sequence* s : plan.decoders) {
    s->outcome.speculation.verify_s += verify_s;
    s->outcome.decode_s += verify_s;
    if (plan.prefillers.empty()) {
      s->union_sum += hidden.expert_union;
      ++s->decode_steps;
    }
  }
  if (plan.prefillers.empty()) costs_.record_step(plan.context, plan.batch.rows, verify_s);

  watch.restart();
  if (model_.has_mtp()) prime_prompts(plan, hidden.head_input);
  const double prime_s = watch.seconds();
  for (Sequence* s : plan.prefillers)
    s->outcome.prefill_s += verify_s + prime_s;
  if (model_.has_mtp()) {
    const std::vector<Sequence*> drafters = committed_drafters(plan);
    choose_depths(drafters);
    prime_and_draft(drafters, plan.context, hidden.head_input);
  }
  retire_finished();
  return !running_.empty() || !waiting_.empty();
}

void Engine::pick_rows(const StepPlan& plan, const ops::Tensor& normed) {
  std::vector<std::int32_t> rows;
  for (Sequence* s : plan.decoders) {
    s->pick_begin = s->row_begin;
    for (std::int64_t r = 0; r < s->row_count; ++r) {
      rows.push_back(static_cast<std::int32_t>(s->row_begin + r));
    }
  }
  for (Sequence* s : plan.prefillers) {
    s->pick_begin = s->row_begin + s->row_count - 1;
    if (s->prompt_finished()) rows.push_back(static_cast<std::int32_t>(s->pick_begin));
  }
  if (rows.empty()) return;
  ops::Tensor picked = normed;
  if (static_cast<std::int64_t>(rows.size()) != normed.rows) {
    picked = backend_.scratch(static_cast<std::int64_t>(rows.size()), normed.width);
    backend_.gather_rows(normed, rows, picked);
  }
  const std::span<const float> logits = backend_.host_view(model_.logits(picked));
  const auto width = static_cast<std::size_t>(model_.config().vocab_rows);
  std::size_t at = 0;
  for (Sequence* s : plan.decoders) {
    pick_and_commit(*s, logits.subspan(at * width, static_cast<std::size_t>(s->row_count) * width));
    at += static_cast<std::size_t>(s->row_count);
  }
  for (Sequence* s : plan.prefillers) {
    if (s->prompt_finished()) pick_and_commit(*s, logits.subspan(at++ * width, width));
  }
}

void Engine::pick_and_commit(Sequence& s, std::span<const float> logits) {
  const auto width = static_cast<std::size_t>(model_.config().vocab_rows);
  const std::size_t already = s.outcome.token_ids.size();
  std::vector<std::int32_t> picks;
  for (std::size_t j = 0; j <= s.drafts.size(); ++j) {
    const auto row = logits.subspan(j * width, width);
    const std::int32_t token = s.sampler.pick(row, already + j, s.history);
    if (token < 0) {
      s.outcome.error = "the model's logits are not finite; the artifact is damaged";
      finish(s, FinishReason::kError);
      return;
    }
    picks.push_back(token);
    s.history.push(token);
    if (s.request.logprobs >= 0) {
      s.outcome.logprobs.push_back(logprobs(row, vocab_size_, token, s.request.logprobs));
    }
    const bool stands = j < s.drafts.size() && s.drafts[j] == token;
    if (!stands || s.is_stop(token)) break;
  }

  const Accepted result = accept({.drafts = s.drafts,
                                  .picks = picks,
                                  .tokens_left = s.tokens_left(),
                                  .stop_ids = s.request.stop_ids,
                                  .text_stops = [&](std::int32_t token) {
                                    return s.sink != nullptr && s.sink->on_token(token);
                                  }});
  const auto emitted = static_cast<std::size_t>(result.emitted);
  for (std::size_t j = emitted; j < picks.size(); ++j)
    s.history.pop();
  s.committed.assign(picks.begin(), picks.begin() + result.emitted);
  s.outcome.token_ids.insert(s.outcome.token_ids.end(), s.committed.begin(), s.committed.end());
  if (s.request.logprobs >= 0) s.outcome.logprobs.resize(s.outcome.token_ids.size());

  SpeculationStats& stats = s.outcome.speculation;
  if (!s.drafts.empty()) {
    ++stats.rounds;
    stats.accepted += result.accepted;
    for (int d = 0; d < result.tried; ++d)
      ++stats.tried_per_depth[static_cast<std::size_t>(d)];
    for (int d = 0; d < result.accepted; ++d) {
      ++stats.accepted_per_depth[static_cast<std::size_t>(d)];
    }
    s.policy.observe(result);
    const std::int64_t before = s.state->position() - s.row_count;
    if (result.emitted < s.row_count) s.state->rewind(before + result.emitted);
  }
  s.drafts.clear();

  if (result.finish == Finish::kStopText) s.outcome.stop_text = true;
  if (result.finish == Finish::kLength) {
    finish(s, FinishReason::kLength);
  } else if (result.finish != Finish::kNone) {
    finish(s, FinishReason::kStop);
  }
}

void Engine::finish(Sequence& s, FinishReason reason) {
  s.finished = true;
  s.outcome.reason = reason;
  if (s.decode_steps > 0) {
    s.outcome.speculation.expert_union_mean = s.union_sum / static_cast<double>(s.decode_steps);
  }
  SpeculationStats& stats = s.outcome.speculation;
  while (!stats.tried_per_depth.empty() && stats.tried_per_depth.back() == 0) {
    stats.tried_per_depth.pop_back();
  }
  stats.accepted_per_depth.resize(stats.tried_per_depth.size());
}

void Engine::retire_finished() {
  const auto retire = [&](std::unique_ptr<Sequence>& s) {
    if (!s->finished) return false;
    outcomes_.emplace_back(s->id, std::move(s->outcome));
    return true;
  };
  std::erase_if(running_, retire);
  std::erase_if(waiting_, retire);
}

}  // namespace lockstep::decode
