// SPDX-License-Identifier: Apache-2.0
// How many tokens to draft. Expected tokens of a round come from the request's own acceptance per
// depth, its cost from a table measured while running. Depth 0 is always a candidate, and wins when
// drafting would not clearly pay. The choice changes speed only, never the answer.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/base/limits.h"
#include "lockstep/decode/accept.h"

namespace lockstep::decode {

// Seconds of one pass by number of rows and context length. Each cell keeps its latest samples and
// answers with their median, so that one preempted step does not turn the policy.
class CostTable {
 public:
  void record_step(std::int64_t context, std::int64_t rows, double seconds);
  void record_draft(std::int64_t context, std::int64_t rows, double seconds);
  // Interpolated between measured row counts; 0 when nothing was measured.
  double step_s(std::int64_t context, std::int64_t rows) const;
  double draft_s(std::int64_t context, std::int64_t rows) const;
  bool empty() const { return step_.empty(); }

 private:
  class Cell {
   public:
    void add(double seconds);
    double median() const { return median_; }

   private:
    static constexpr std::size_t kSamples = 15;
    std::array<double, kSamples> samples_{};
    std::size_t count_ = 0;
    double median_ = 0;
  };
  using Row = std::map<std::int64_t, Cell>;  // by row count
  using Table = std::map<int, Row>;          // by context bucket
  static int bucket(std::int64_t context);
  static double lookup(const Table& table, std::int64_t context, std::int64_t rows);

  Table step_;
  Table draft_;
};

// How often drafts of each depth stood, given that those before them did. Old evidence fades.
class AcceptanceRecord {
 public:
  void observe(const Accepted& result, double fade);
  void fade(double factor);
  // (accepted + weight * prior) / (tried + weight) of draft `depth` (1-based).
  double rate(int depth, double prior, double weight) const;

 private:
  std::array<double, limits::kDraftDepthMax> tried_{};
  std::array<double, limits::kDraftDepthMax> accepted_{};
};

inline constexpr int kAutoDepth = -1;

class DepthPolicy {
 public:
  // `depth`: kAutoDepth, or 0..limits::kDraftDepthMax to use that depth always. `others`: what the
  // engine has seen of all requests, the belief with which this one starts; it must outlive this.
  DepthPolicy(int depth, AcceptanceRecord* others) : fixed_(depth), others_(others) {}

  bool may_draft() const { return fixed_ != 0; }
  bool automatic() const { return fixed_ == kAutoDepth; }

  // Depth of the next round, at most `depth_max`. `sequences` share the step.
  int next(const CostTable& costs, std::int64_t context, std::int64_t sequences, int depth_max);
  void observe(const Accepted& result);

  // Estimated chance that draft `depth` (1-based) stands, given that those before it did.
  double acceptance(int depth) const;

 private:
  int best_depth(const CostTable& costs, std::int64_t context, std::int64_t sequences,
                 int depth_max) const;

  int fixed_;
  AcceptanceRecord* others_;
  AcceptanceRecord own_;
  int parked_rounds_ = 0;   // rounds at depth 0 since the last probe
  int probe_interval_ = 0;  // rounds to wait before the next one
};

}  // namespace lockstep::decode
