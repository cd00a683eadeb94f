// SPDX-License-Identifier: Apache-2.0
#include "lockstep/decode/depth_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lockstep::decode {
namespace {

// Drafting must promise this much to be done at all, since estimates err.
constexpr double kGainMin = 1.02;
// Of depths that promise nearly the same the smallest is taken: it wastes least when the text
// turns.
constexpr double kNearBest = 0.97;
// Belief of a new engine, and how many tried drafts a belief weighs.
constexpr double kPriorAcceptance = 0.8;
constexpr double kPriorWeight = 3;
// Evidence fades with a half-life of about 35 rounds of the request, so that a change of topic
// shows, and of about 140 rounds of all requests.
constexpr double kFade = 0.98;
constexpr double kFadeOthers = 0.995;
// While parked nothing new is seen; what is known fades slower.
constexpr double kParkedFade = 0.995;
// Rounds between probes while parked at depth 0. A probe costs about half a plain step, so the
// first interval bounds the loss to about one per cent; each failed probe doubles it.
constexpr int kProbeIntervalMin = 48;
constexpr int kProbeIntervalMax = 768;

}  // namespace

void CostTable::Cell::add(double seconds) {
  samples_[count_ % kSamples] = seconds;
  ++count_;
  const std::size_t filled = std::min(count_, kSamples);
  std::array<double, kSamples> sorted = samples_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(filled / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(filled));
  median_ = *middle;
}

int CostTable::bucket(std::int64_t context) {
  // 0-1023, 1024-2047, 2048-4095, ...
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(context) >> 10));
}

void CostTable::record_step(std::int64_t context, std::int64_t rows, double seconds) {
  step_[bucket(context)][rows].add(seconds);
}

void CostTable::record_draft(std::int64_t context, std::int64_t rows, double seconds) {
  draft_[bucket(context)][rows].add(seconds);
}

double CostTable::lookup(const Table& table, std::int64_t context, std::int64_t rows) {
  if (table.empty()) return 0;
  // The longest measured context that is not longer; else the shortest measured one.
  auto at = table.upper_bound(bucket(context));
  if (at != table.begin()) --at;
  const Row* row = &at->second;
  // A bucket that has seen few row counts says less than a full one before it.
  while (row->size() < 2 && at != table.begin())
    row = &(--at)->second;

  const auto above = row->lower_bound(rows);
  if (above != row->end() && above->first == rows) return above->second.median();
  if (above == row->begin()) return above->second.median();
  auto low = row->begin();
  auto high = row->begin();
  if (above != row->end()) {
    high = above;
    low = std::prev(above);
  } else {
    high = std::prev(row->end());
    if (high == row->begin()) {
      return high->second.median() * static_cast<double>(rows) / static_cast<double>(high->first);
    }
    low = std::prev(high);
  }
  const double slope = std::max(0.0, (high->second.median() - low->second.median()) /
                                         static_cast<double>(high->first - low->first));
  return low->second.median() + slope * static_cast<double>(rows - low->first);
}

double CostTable::step_s(std::int64_t context, std::int64_t rows) const {
  return lookup(step_, context, rows);
}

double CostTable::draft_s(std::int64_t context, std::int64_t rows) const {
  return lookup(draft_, context, rows);
}

void AcceptanceRecord::observe(const Accepted& result, double factor) {
  fade(factor);
  for (int d = 0; d < result.tried; ++d)
    tried_[static_cast<std::size_t>(d)] += 1;
  for (int d = 0; d < result.accepted; ++d)
    accepted_[static_cast<std::size_t>(d)] += 1;
}

void AcceptanceRecord::fade(double factor) {
  for (double& count : tried_)
    count *= factor;
  for (double& count : accepted_)
    count *= factor;
}

double AcceptanceRecord::rate(int depth, double prior, double weight) const {
  const auto d = static_cast<std::size_t>(depth - 1);
  return (accepted_[d] + prior * weight) / (tried_[d] + weight);
}

double DepthPolicy::acceptance(int depth) const {
  // Each depth starts from the one before it: of all requests, then of this one.
  double others = kPriorAcceptance;
  double own = kPriorAcceptance;
  for (int d = 1; d <= depth; ++d) {
    others = others_->rate(d, others, kPriorWeight);
    own = own_.rate(d, d == 1 ? others : (others + own) / 2, kPriorWeight);
  }
  return own;
}

int DepthPolicy::best_depth(const CostTable& costs, std::int64_t context, std::int64_t sequences,
                            int depth_max) const {
  const double plain_s = costs.step_s(context, sequences);
  const double draft_s = costs.draft_s(context, sequences);
  if (plain_s <= 0 || draft_s <= 0) return std::min(1, depth_max);  // nothing measured yet
  std::array<double, limits::kDraftDepthMax + 1> rates{1 / plain_s};
  double tokens = 1;
  double standing = 1;
  for (int depth = 1; depth <= depth_max; ++depth) {
    standing *= acceptance(depth);
    tokens += standing;
    const double cost_s = costs.step_s(context, sequences * (depth + 1)) + depth * draft_s;
    rates[static_cast<std::size_t>(depth)] = tokens / cost_s;
  }
  const double best_rate = *std::max_element(rates.begin(), rates.end());
  if (best_rate < kGainMin * rates[0]) return 0;
  int depth = 1;
  while (rates[static_cast<std::size_t>(depth)] < kNearBest * best_rate)
    ++depth;
  return depth;
}

int DepthPolicy::next(const CostTable& costs, std::int64_t context, std::int64_t sequences,
                      int depth_max) {
  depth_max = std::min(depth_max, limits::kDraftDepthMax);
  if (!automatic()) return std::min(fixed_, depth_max);
  if (depth_max <= 0) return 0;
  const int best = best_depth(costs, context, sequences, depth_max);
  if (best > 0) {
    parked_rounds_ = 0;
    probe_interval_ = kProbeIntervalMin;
    return best;
  }
  own_.fade(kParkedFade);
  if (probe_interval_ == 0) probe_interval_ = kProbeIntervalMin;
  if (++parked_rounds_ < probe_interval_) return 0;
  parked_rounds_ = 0;
  probe_interval_ = std::min(2 * probe_interval_, kProbeIntervalMax);
  return 1;
}

void DepthPolicy::observe(const Accepted& result) {
  if (result.tried == 0) return;
  own_.observe(result, kFade);
  others_->observe(result, kFadeOthers);
}

}  // namespace lockstep::decode
