// SPDX-License-Identifier: Apache-2.0
#include "lockstep/eval/score.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/decode/engine.h"
#include "lockstep/decode/sampler.h"

namespace lockstep::eval {
namespace {

// Rows of one forward pass, a multiple of the chunk grain.
constexpr std::int64_t kRowsMax = 512;
// Rows whose logits are held at once: 64 MB for a vocabulary of 250,000.
constexpr std::int64_t kLogitRowsMax = 64;

using Ids = std::span<const std::int32_t>;

// Consecutive windows that run side by side, each in its own state.
struct Group {
  Ids ids;  // of all windows
  std::int64_t window = 0;

  std::int64_t count() const {
    return (static_cast<std::int64_t>(ids.size()) + window - 1) / window;
  }
  Ids at(std::int64_t index) const {
    const auto begin = static_cast<std::size_t>(index * window);
    return ids.subspan(begin, std::min(static_cast<std::size_t>(window), ids.size() - begin));
  }
};

// A row that predicts a token.
struct Row {
  std::int64_t index = 0;  // of that token in the text
  std::int32_t token = 0;
};

// Runs a group through one model, a part at a time, and hands out blocks of logits.
class Predictor {
 public:
  Predictor(const model::Model& model, const Group& group) : model_(model), group_(group) {
    for (std::int64_t i = 0; i < group.count(); ++i)
      states_.push_back(model.make_state());
  }

  // Tokens [begin, begin + kRowsMax) of every window. Rows that predict nothing, the last of each
  // window, are left out.
  void forward(std::int64_t begin, std::int64_t text_begin, std::vector<Row>& rows) {
    ops::Batch batch;
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> kept;
    rows.clear();
    for (std::int64_t i = 0; i < group_.count(); ++i) {
      const Ids window = group_.at(i);
      const auto length = static_cast<std::int64_t>(window.size());
      const std::int64_t end = std::min(length, begin + kRowsMax);
      if (begin >= end) continue;
      for (std::int64_t p = begin; p < end; ++p) {
        const auto row = static_cast<std::int32_t>(ids.size());
        ids.push_back(window[static_cast<std::size_t>(p)]);
        if (p + 1 == length) continue;
        kept.push_back(row);
        rows.push_back({.index = text_begin + i * group_.window + p + 1,
                        .token = window[static_cast<std::size_t>(p + 1)]});
      }
      model::append_text_segment(batch, {.cls = ops::SegmentClass::kPrefill,
                                         .row_count = end - begin,
                                         .position = begin,
                                         .state = states_[static_cast<std::size_t>(i)].get()});
    }
    ops::Backend& backend = model_.backend();
    backend.reset_scratch();
    const ops::Tensor normed = model_.forward(batch, ids).normed;
    width_ = normed.width;
    hidden_.resize(kept.size() * static_cast<std::size_t>(width_));
    if (kept.empty()) return;
    const ops::Tensor gathered =
        backend.scratch(static_cast<std::int64_t>(kept.size()), normed.width);
    backend.gather_rows(normed, kept, gathered);
    backend.download(gathered, hidden_);
  }

  // Logits of rows [begin, begin + count) of the last forward(), valid until the next call.
  std::span<const float> logits(std::int64_t begin, std::int64_t count) {
    ops::Backend& backend = model_.backend();
    backend.reset_scratch();
    const ops::Tensor rows = backend.scratch(count, width_);
    const auto values = std::span(hidden_).subspan(static_cast<std::size_t>(begin * width_),
                                                   static_cast<std::size_t>(count * width_));
    backend.upload(values, rows);
    return backend.host_view(model_.logits(rows));
  }

  std::int64_t logits_width() const { return model_.config().vocab_rows; }

 private:
  const model::Model& model_;
  const Group& group_;
  std::vector<std::unique_ptr<ops::SequenceState>> states_;
  std::vector<float> hidden_;  // [rows, width_]
  std::int64_t width_ = 0;
};

class Scorer {
 public:
  Scorer(const model::Model& model, const model::Model* reference, std::int32_t vocab_size,
         const ScoreOptions& options)
      : model_(model), reference_(reference), vocab_size_(vocab_size), options_(options) {}

  Status run(const Group& group, std::int64_t text_begin) {
    Predictor predictor(model_, group);
    std::unique_ptr<Predictor> reference;
    if (reference_ != nullptr) reference = std::make_unique<Predictor>(*reference_, group);
    std::vector<Row> rows;
    const auto longest = static_cast<std::int64_t>(group.at(0).size());
    for (std::int64_t begin = 0; begin < longest; begin += kRowsMax) {
      if (reference) reference->forward(begin, text_begin, rows);
      predictor.forward(begin, text_begin, rows);
      const auto count = static_cast<std::int64_t>(rows.size());
      for (std::int64_t at = 0; at < count; at += kLogitRowsMax) {
        const std::int64_t block = std::min(kLogitRowsMax, count - at);
        LOCKSTEP_TRY_STATUS(score_block(
            std::span(rows).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(block)),
            at, predictor, reference.get()));
      }
    }
    return {};
  }

  Score& result() { return result_; }

 private:
  Status score_block(std::span<const Row> rows, std::int64_t at, Predictor& predictor,
                     Predictor* reference) {
    const auto count = static_cast<std::int64_t>(rows.size());
    const std::span<const float> p = predictor.logits(at, count);
    std::span<const float> q;
    if (reference != nullptr) q = reference->logits(at, count);
    const auto vocab = static_cast<std::size_t>(vocab_size_);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto row = p.subspan(r * static_cast<std::size_t>(predictor.logits_width()), vocab);
      std::span<const float> other;
      if (reference != nullptr) {
        other = q.subspan(r * static_cast<std::size_t>(reference->logits_width()), vocab);
      }
      LOCKSTEP_TRY_STATUS(score_row(rows[r], row, other));
    }
    return {};
  }

  Status score_row(const Row& row, std::span<const float> logits, std::span<const float> other) {
    const double total = decode::log_sum_exp(logits);
    const double other_total = other.empty() ? 0 : decode::log_sum_exp(other);
    Position position{.index = row.index};
    position.logprob = static_cast<double>(logits[static_cast<std::size_t>(row.token)]) - total;
    if (!other.empty()) {
      double sum = 0;
      for (std::size_t i = 0; i < other.size(); ++i) {
        const double log_q = static_cast<double>(other[i]) - other_total;
        const double log_p = static_cast<double>(logits[i]) - total;
        const double q = std::exp(log_q);
        if (q > 0) sum += q * (log_q - log_p);
      }
      position.divergence = sum < 0 ? 0 : sum;  // rounding may leave it just below zero
      position.top1_equal = decode::argmax(other) == decode::argmax(logits);
    }
    if (!std::isfinite(position.logprob) || !std::isfinite(position.divergence)) {
      return Error{ErrorCode::kInconsistent,
                   "the logits before token " + std::to_string(row.index) +
                       " are not finite; the artifact is damaged",
                   "model"};
    }
    ++result_.tokens;
    result_.nll_sum -= position.logprob;
    result_.kl_sum += position.divergence;
    result_.kl_max = std::max(result_.kl_max, position.divergence);
    result_.top1_equal += position.top1_equal ? 1 : 0;
    if (options_.keep_positions) result_.positions.push_back(position);
    return {};
  }

  const model::Model& model_;
  const model::Model* reference_;
  std::int32_t vocab_size_;
  const ScoreOptions& options_;
  Score result_;
};

Status check(const model::Model& model, const model::Model* reference, std::int32_t vocab_size,
             Ids ids, std::int64_t window) {
  if (window < 2) {
    return Error{ErrorCode::kInvalidArgument,
                 "is " + std::to_string(window) + "; a window needs 2 tokens or more", "window"};
  }
  std::int64_t context = model.config().context_tokens_max;
  if (reference != nullptr) {
    context = std::min(context, reference->config().context_tokens_max);
  }
  if (window > context) {
    return Error{ErrorCode::kLimit,
                 "is " + std::to_string(window) + ", and the context holds " +
                     std::to_string(context) + " tokens",
                 "window"};
  }
  if (ids.size() < 2) {
    return Error{ErrorCode::kInvalidArgument,
                 "the text has " + std::to_string(ids.size()) +
                     " tokens, and the first of a window is not scored; give at least 2",
                 "text"};
  }
  return decode::check_token_ids(ids, vocab_size, "text");
}

}  // namespace

double Score::perplexity() const {
  return std::exp(nll());
}

void Score::add(const Score& other) {
  tokens += other.tokens;
  nll_sum += other.nll_sum;
  kl_sum += other.kl_sum;
  kl_max = std::max(kl_max, other.kl_max);
  top1_equal += other.top1_equal;
}

Result<Score> score(const model::Model& model, const model::Model* reference,
                    std::int32_t vocab_size, Ids ids, const ScoreOptions& options,
                    const std::function<bool(std::int64_t)>& progress) {
  LOCKSTEP_TRY_STATUS(check(model, reference, vocab_size, ids, options.window));
  CHECK(reference == nullptr || &reference->backend() != &model.backend());
  Scorer scorer(model, reference, vocab_size, options);
  const auto group_tokens = static_cast<std::size_t>(
      std::max(std::int64_t{1}, kRowsMax / options.window) * options.window);
  for (std::size_t begin = 0; begin < ids.size(); begin += group_tokens) {
    const Group group{.ids = ids.subspan(begin, std::min(group_tokens, ids.size() - begin)),
                      .window = options.window};
    LOCKSTEP_TRY_STATUS(scorer.run(group, static_cast<std::int64_t>(begin)));
    if (progress && !progress(static_cast<std::int64_t>(begin + group.ids.size()))) {
      return Error{ErrorCode::kCancelled, "stopped before the end of the text", "score"};
    }
  }
  return std::move(scorer.result());
}

}  // namespace lockstep::eval
