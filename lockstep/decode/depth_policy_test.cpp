// SPDX-License-Identifier: Apache-2.0
#include "lockstep/decode/depth_policy.h"

#include <gtest/gtest.h>

namespace lockstep::decode {
namespace {

// A machine where one more row costs `row` of a plain step, and a draft costs `draft`.
CostTable machine(double row, double draft) {
  CostTable costs;
  for (int rows = 1; rows <= 9; ++rows) {
    for (int i = 0; i < 5; ++i)
      costs.record_step(0, rows, 1 + row * (rows - 1));
  }
  for (int i = 0; i < 5; ++i)
    costs.record_draft(0, 1, draft);
  return costs;
}

// Plays `rounds` of a text in which every draft stands with certainty (or never does).
int depth_after(DepthPolicy& policy, const CostTable& costs, bool stands, int rounds) {
  int depth = 0;
  for (int i = 0; i < rounds; ++i) {
    depth = policy.next(costs, 10, 1, 8);
    if (depth > 0) {
      policy.observe({.emitted = stands ? depth + 1 : 1,
                      .accepted = stands ? depth : 0,
                      .tried = stands ? depth : 1,
                      .finish = Finish::kNone});
    }
  }
  return depth;
}

TEST(DepthPolicy, FixedDepthIsKeptUpToTheCap) {
  AcceptanceRecord others;
  DepthPolicy policy(3, &others);
  EXPECT_EQ(policy.next({}, 0, 1, 8), 3);
  EXPECT_EQ(policy.next({}, 0, 1, 2), 2);
  EXPECT_FALSE(DepthPolicy(0, &others).may_draft());
}

TEST(DepthPolicy, CheapRowsAndCertainDraftsGoDeep) {
  AcceptanceRecord others;
  DepthPolicy policy(kAutoDepth, &others);
  EXPECT_EQ(depth_after(policy, machine(0.05, 0.05), true, 50), 8);
}

TEST(DepthPolicy, DraftsThatNeverStandArePutAside) {
  AcceptanceRecord others;
  DepthPolicy policy(kAutoDepth, &others);
  const CostTable costs = machine(0.2, 0.3);
  depth_after(policy, costs, false, 50);
  int drafting = 0;
  for (int i = 0; i < 1000; ++i)
    drafting += depth_after(policy, costs, false, 1) > 0 ? 1 : 0;
  EXPECT_LT(drafting, 20);  // at most two per cent of the rounds probe
  EXPECT_GT(drafting, 0);   // but it does look again
}

TEST(DepthPolicy, ComesBackWhenTheTextTurnsPredictable) {
  AcceptanceRecord others;
  DepthPolicy policy(kAutoDepth, &others);
  const CostTable costs = machine(0.1, 0.1);
  depth_after(policy, costs, false, 200);
  depth_after(policy, costs, true, 3000);
  EXPECT_GT(depth_after(policy, costs, true, 1), 2);
}

TEST(DepthPolicy, StaysPlainWhereRowsCostAsMuchAsSteps) {
  AcceptanceRecord others;
  DepthPolicy policy(kAutoDepth, &others);
  const CostTable costs = machine(1.0, 0.3);
  int drafting = 0;
  for (int i = 0; i < 500; ++i)
    drafting += depth_after(policy, costs, true, 1) > 0 ? 1 : 0;
  EXPECT_LT(drafting, 25);
}

TEST(DepthPolicy, OfNearlyEqualDepthsTheSmallestIsTaken) {
  AcceptanceRecord others;
  DepthPolicy policy(kAutoDepth, &others);
  // With certain drafts at these prices every depth from 2 on makes 1.5 tokens per plain step.
  CostTable costs;
  costs.record_draft(0, 1, 0.1);
  costs.record_step(0, 1, 1.0);
  costs.record_step(0, 2, 1.4);
  for (int rows = 3; rows <= 9; ++rows)
    costs.record_step(0, rows, rows / 1.5 - 0.1 * (rows - 1));
  EXPECT_EQ(depth_after(policy, costs, true, 200), 2);
}

TEST(DepthPolicy, ANewRequestStartsFromWhatOthersHaveShown) {
  const CostTable costs = machine(0.2, 0.3);
  AcceptanceRecord others;
  DepthPolicy first(kAutoDepth, &others);
  EXPECT_GT(first.next(costs, 10, 1, 8), 0);
  depth_after(first, costs, false, 60);
  EXPECT_EQ(DepthPolicy(kAutoDepth, &others).next(costs, 10, 1, 8), 0);
}

TEST(CostTable, InterpolatesBetweenRowsAndExtendsBeyond) {
  CostTable costs;
  costs.record_step(0, 1, 1.0);
  costs.record_step(0, 5, 3.0);
  EXPECT_DOUBLE_EQ(costs.step_s(0, 1), 1.0);
  EXPECT_DOUBLE_EQ(costs.step_s(0, 3), 2.0);
  EXPECT_DOUBLE_EQ(costs.step_s(0, 9), 5.0);
}

TEST(CostTable, OneSlowSampleDoesNotCount) {
  CostTable costs;
  for (int i = 0; i < 10; ++i)
    costs.record_step(0, 1, 1.0);
  costs.record_step(0, 1, 100.0);
  EXPECT_DOUBLE_EQ(costs.step_s(0, 1), 1.0);
}

TEST(CostTable, LongerContextsHaveTheirOwnFigures) {
  CostTable costs;
  for (const std::int64_t rows : {1, 2}) {
    costs.record_step(0, rows, 1.0);
    costs.record_step(100'000, rows, 4.0);
  }
  EXPECT_DOUBLE_EQ(costs.step_s(500, 1), 1.0);
  EXPECT_DOUBLE_EQ(costs.step_s(200'000, 1), 4.0);
  EXPECT_DOUBLE_EQ(costs.step_s(5'000, 1), 1.0);
}

}  // namespace
}  // namespace lockstep::decode
