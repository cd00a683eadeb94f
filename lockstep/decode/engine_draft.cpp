// SPDX-License-Identifier: Apache-2.0
// The head's side of the engine: priming, lazily kept pairs, chained drafts, and the calibration of
// the cost table. Nothing here can change an answer.
#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/limits.h"
#include "lockstep/decode/engine.h"
#include "lockstep/decode/engine_internal.h"

namespace lockstep::decode {
namespace {

// Pairs are primed in batches of this many while the policy is parked: a batch of rows costs far
// less than the same rows one by one.
constexpr std::size_t kParkedPairsMax = 64;

void append_head_segment(ops::Batch& batch, ops::SequenceState& state, int layer,
                         std::int64_t rows) {
  model::append_text_segment(batch, {.cls = ops::SegmentClass::kStep,
                                     .row_count = rows,
                                     .position = state.kv_length(layer),
                                     .state = &state});
}

}  // namespace

void Engine::prime_prompts(const StepPlan& plan, const ops::Tensor& hidden) {
  ops::Batch batch;
  std::vector<std::int32_t> next_ids;
  std::vector<std::int32_t> rows;
  for (Sequence* s : plan.prefillers) {
    if (!s->policy.may_draft()) continue;
    const std::int64_t begin = s->prompt_done - s->row_count;
    // The pair of the prompt's last token needs the first token of the answer; it follows later.
    const std::int64_t end = std::min(s->prompt_done, s->outcome.prompt_tokens - 1);
    if (begin >= end) continue;
    append_head_segment(batch, *s->state, model_.mtp_layer(), end - begin);
    for (std::int64_t p = begin; p < end; ++p) {
      next_ids.push_back(s->request.prompt[static_cast<std::size_t>(p + 1)]);
      rows.push_back(static_cast<std::int32_t>(s->row_begin + p - begin));
    }
  }
  if (rows.empty()) return;
  ops::Tensor gathered = backend_.scratch(static_cast<std::int64_t>(rows.size()), hidden.width);
  backend_.gather_rows(hidden, rows, gathered);
  model_.mtp_prime(batch, next_ids, gathered);
}

// Sequences that go on, may draft, and have new pairs for the head.
std::vector<Engine::Sequence*> Engine::committed_drafters(const StepPlan& plan) const {
  std::vector<Sequence*> drafters = plan.decoders;
  drafters.insert(drafters.end(), plan.prefillers.begin(), plan.prefillers.end());
  std::erase_if(drafters, [](const Sequence* s) {
    return s->finished || s->committed.empty() || !s->policy.may_draft();
  });
  return drafters;
}

void Engine::choose_depths(std::span<Sequence* const> drafters) {
  const auto live = static_cast<std::int64_t>(
      std::count_if(running_.begin(), running_.end(), [](const auto& s) { return !s->finished; }));
  for (Sequence* s : drafters) {
    const auto depth_max =
        static_cast<int>(std::min<std::int64_t>(limits::kDraftDepthMax, s->tokens_left() - 1));
    s->next_depth = s->policy.next(costs_, s->state->position(), live, depth_max);
  }
}

void Engine::park_pairs(Sequence& s, const ops::Tensor& hidden) {
  const auto rows = static_cast<std::int64_t>(s.committed.size());
  const std::span<const float> values = backend_.host_view(rows_of(hidden, s.pick_begin, rows));
  s.parked_hidden.insert(s.parked_hidden.end(), values.begin(), values.end());
  s.parked_ids.insert(s.parked_ids.end(), s.committed.begin(), s.committed.end());
}

void Engine::prime_and_draft(std::span<Sequence* const> drafters, std::int64_t context,
                             const ops::Tensor& hidden) {
  Stopwatch watch;
  for (Sequence* s : drafters)
    park_pairs(*s, hidden);

  // All pairs but the last of those that draft; parked ones only when there are many.
  ops::Batch batch;
  std::vector<std::int32_t> ids;
  std::vector<float> values;
  std::vector<Sequence*> drafting;
  std::vector<std::int32_t> last_ids;
  std::vector<float> last_values;
  const auto width = static_cast<std::ptrdiff_t>(hidden.width);
  for (Sequence* s : drafters) {
    const bool drafts = s->next_depth > 0;
    if (!drafts && s->parked_ids.size() < kParkedPairsMax) continue;
    const auto count = static_cast<std::ptrdiff_t>(s->parked_ids.size()) - (drafts ? 1 : 0);
    if (count > 0) {
      append_head_segment(batch, *s->state, model_.mtp_layer(), count);
      ids.insert(ids.end(), s->parked_ids.begin(), s->parked_ids.begin() + count);
      values.insert(values.end(), s->parked_hidden.begin(),
                    s->parked_hidden.begin() + count * width);
    }
    if (drafts) {
      drafting.push_back(s);
      last_ids.push_back(s->parked_ids.back());
      last_values.insert(last_values.end(), s->parked_hidden.end() - width, s->parked_hidden.end());
    }
    s->parked_ids.clear();
    s->parked_hidden.clear();
  }
  if (!ids.empty()) {
    ops::Tensor pairs = backend_.scratch(static_cast<std::int64_t>(ids.size()), hidden.width);
    backend_.upload(values, pairs);
    model_.mtp_prime(batch, ids, pairs);
  }
  const double commit_s = watch.seconds();
  for (Sequence* s : drafters) {
    s->outcome.speculation.commit_s += commit_s;
    s->outcome.decode_s += commit_s;
  }
  if (drafting.empty()) return;

  watch.restart();
  int passes = 0;
  for (const Sequence* s : drafting)
    passes = std::max(passes, s->next_depth);
  ops::Tensor last = backend_.scratch(static_cast<std::int64_t>(drafting.size()), hidden.width);
  backend_.upload(last_values, last);
  draft_chain(drafting, std::move(last_ids), last);
  const double draft_s = watch.seconds();
  for (Sequence* s : drafting)
    s->outcome.speculation.draft_s += draft_s;
  for (Sequence* s : drafters)
    s->outcome.decode_s += draft_s;
  costs_.record_draft(context, static_cast<std::int64_t>(drafting.size()),
                      (commit_s + draft_s) / passes);
}

std::int32_t Engine::draft_pick(Sequence& s, std::span<const float> logits) {
  const std::size_t index = s.outcome.token_ids.size() + s.drafts.size();
  const std::int32_t own = s.sampler.pick(logits, index, s.history);
  return index < s.request.scripted_drafts.size() ? s.request.scripted_drafts[index] : own;
}

void Engine::draft_chain(std::vector<Sequence*> sequences, std::vector<std::int32_t> ids,
                         ops::Tensor hidden) {
  const int layer = model_.mtp_layer();
  const auto width = static_cast<std::size_t>(model_.config().vocab_rows);
  const std::vector<Sequence*> all = sequences;
  // The first link is a true pair and stays; what the chain adds after it is cut again.
  std::vector<std::int64_t> true_length;
  for (const Sequence* s : all)
    true_length.push_back(s->state->kv_length(layer) + 1);

  while (!sequences.empty()) {
    ops::Batch batch;
    for (Sequence* s : sequences)
      append_head_segment(batch, *s->state, layer, 1);
    const ops::Tensor out = model_.mtp_forward(batch, ids, hidden);
    const std::span<const float> logits = backend_.host_view(model_.logits(out));
    std::vector<Sequence*> going_on;
    std::vector<std::int32_t> rows;
    ids.clear();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Sequence& s = *sequences[i];
      const std::int32_t token = draft_pick(s, logits.subspan(i * width, width));
      if (token < 0) continue;  // a damaged head: go on without drafts
      s.drafts.push_back(token);
      s.history.push(token);
      ++s.outcome.speculation.drafted;
      // Nothing follows an end-of-turn token.
      if (static_cast<int>(s.drafts.size()) >= s.next_depth || s.is_stop(token)) continue;
      going_on.push_back(&s);
      rows.push_back(static_cast<std::int32_t>(i));
      ids.push_back(token);
    }
    sequences = std::move(going_on);
    if (sequences.empty()) break;
    hidden = backend_.scratch(static_cast<std::int64_t>(rows.size()), out.width);
    backend_.gather_rows(out, rows, hidden);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i]->state->truncate_kv(layer, true_length[i]);
    for (std::size_t d = 0; d < all[i]->drafts.size(); ++d)
      all[i]->history.pop();
  }
}

void Engine::calibrate() {
  constexpr double kBudgetPerWidthS = 0.04;
  constexpr int kRepeats = 5;
  const auto state = model_.make_state();
  // The median of a few passes, recorded once: what is seen later, at work, soon counts for more.
  const auto measure = [&](auto&& pass) {
    std::vector<double> samples;
    Stopwatch budget;
    for (int i = 0; i <= kRepeats; ++i) {
      backend_.reset_scratch();
      Stopwatch watch;
      pass();
      // The first pass warms caches; it counts only where a second would take too long.
      if (i > 0 || watch.seconds() > kBudgetPerWidthS) samples.push_back(watch.seconds());
      if (budget.seconds() > kBudgetPerWidthS) break;
    }
    if (samples.empty()) samples.push_back(budget.seconds());
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2];
  };
  std::int32_t next = 0;
  const auto some_ids = [&](std::int64_t count) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < count; ++i) {
      ids.push_back(next = static_cast<std::int32_t>((next + 997LL) % vocab_size_));
    }
    return ids;
  };
  const auto pick_all = [&](const ops::Tensor& normed) {
    const auto logits = backend_.host_view(model_.logits(normed));
    const auto width = static_cast<std::size_t>(model_.config().vocab_rows);
    for (std::size_t at = 0; at < logits.size(); at += width) {
      next ^= argmax(logits.subspan(at, static_cast<std::size_t>(vocab_size_))) & 1;
    }
  };
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, limits::kWindowRowsMax}) {
    const double seconds = measure([&] {
      ops::Batch batch;
      model::append_text_segment(batch, {.cls = ops::SegmentClass::kStep,
                                         .row_count = rows,
                                         .position = state->position(),
                                         .state = state.get(),
                                         .speculative = true});
      const auto ids = some_ids(rows);
      pick_all(model_.forward(batch, ids).normed);
      state->rewind(state->position() - rows);
    });
    costs_.record_step(0, rows, seconds);
  }
  const std::vector<float> zeros(static_cast<std::size_t>(model_.config().hidden), 0.0f);
  const double seconds = measure([&] {
    ops::Batch batch;
    append_head_segment(batch, *state, model_.mtp_layer(), 1);
    ops::Tensor hidden = backend_.scratch(1, model_.config().hidden);
    backend_.upload(zeros, hidden);
    pick_all(model_.mtp_forward(batch, some_ids(1), hidden));
    state->truncate_kv(model_.mtp_layer(), 0);
  });
  costs_.record_draft(0, 1, seconds);
}

}  // namespace lockstep::decode
