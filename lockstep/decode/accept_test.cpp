// SPDX-License-Identifier: Apache-2.0
#include "lockstep/decode/accept.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <vector>

namespace lockstep::decode {
namespace {

using Ids = std::vector<std::int32_t>;

Accepted run(const Ids& drafts, const Ids& picks, std::int64_t left = 100, const Ids& stops = {}) {
  return accept({.drafts = drafts,
                 .picks = picks,
                 .tokens_left = left,
                 .stop_ids = stops,
                 .text_stops = nullptr});
}

TEST(Accept, PlainStepEmitsItsPick) {
  const Accepted a = run({}, {7});
  EXPECT_EQ(a.emitted, 1);
  EXPECT_EQ(a.tried, 0);
  EXPECT_EQ(a.finish, Finish::kNone);
}

TEST(Accept, AllDraftsStandAndABonusFollows) {
  const Accepted a = run({1, 2, 3}, {1, 2, 3, 4});
  EXPECT_EQ(a.emitted, 4);
  EXPECT_EQ(a.accepted, 3);
  EXPECT_EQ(a.tried, 3);
}

TEST(Accept, TheFirstDifferentPickReplacesItsDraft) {
  const Accepted a = run({1, 9, 3}, {1, 2});
  EXPECT_EQ(a.emitted, 2);
  EXPECT_EQ(a.accepted, 1);
  EXPECT_EQ(a.tried, 2);
}

TEST(Accept, NothingCountsBehindAStopToken) {
  const Accepted a = run({1, 5, 3}, {1, 5, 3, 4}, 100, {5});
  EXPECT_EQ(a.emitted, 2);
  EXPECT_EQ(a.accepted, 2);
  EXPECT_EQ(a.tried, 2);
  EXPECT_EQ(a.finish, Finish::kStopToken);
}

TEST(Accept, TheCapCutsInsideARound) {
  const Accepted a = run({1, 2, 3}, {1, 2, 3, 4}, 2);
  EXPECT_EQ(a.emitted, 2);
  EXPECT_EQ(a.accepted, 2);
  EXPECT_EQ(a.finish, Finish::kLength);
}

TEST(Accept, AStopTokenAtTheCapIsAStop) {
  EXPECT_EQ(run({1}, {1, 5}, 2, {5}).finish, Finish::kStopToken);
}

TEST(Accept, StopTextSeesEveryEmittedTokenOnceButNoStopIds) {
  const Ids drafts = {1, 2, 3}, picks = {1, 2, 3, 4}, stops = {3};
  Ids seen;
  const Accepted a = accept({.drafts = drafts,
                             .picks = picks,
                             .tokens_left = 9,
                             .stop_ids = stops,
                             .text_stops = [&](std::int32_t t) {
                               seen.push_back(t);
                               return t == 2;
                             }});
  EXPECT_EQ(seen, (Ids{1, 2}));
  EXPECT_EQ(a.emitted, 2);
  EXPECT_EQ(a.finish, Finish::kStopText);
}

// Whatever is drafted, the emitted tokens are those that plain decoding of the same target emits.
RC_GTEST_PROP(Accept, EqualsPlainDecodingOfTheSameTarget, ()) {
  const auto answer =
      *rc::gen::nonEmpty(rc::gen::container<Ids>(rc::gen::inRange<std::int32_t>(0, 4)));
  const auto cap = *rc::gen::inRange<std::int64_t>(1, 20);
  const std::int32_t stop = *rc::gen::inRange<std::int32_t>(0, 5);
  const auto target = [&](std::size_t i) { return answer[i % answer.size()]; };

  Ids plain;
  for (std::size_t i = 0; static_cast<std::int64_t>(i) < cap; ++i) {
    plain.push_back(target(i));
    if (plain.back() == stop) break;
  }

  Ids out;
  const Ids stops = {stop};
  for (Finish finish = Finish::kNone; finish == Finish::kNone;) {
    const auto drafts =
        *rc::gen::resize(8, rc::gen::container<Ids>(rc::gen::inRange<std::int32_t>(0, 4)));
    Ids picks;
    for (std::size_t j = 0; j <= drafts.size(); ++j) {
      picks.push_back(target(out.size() + j));
      if (j < drafts.size() && drafts[j] != picks.back()) break;
    }
    const Accepted a = run(drafts, picks, cap - static_cast<std::int64_t>(out.size()), stops);
    RC_ASSERT(a.emitted >= 1);
    RC_ASSERT(a.accepted <= a.tried);
    RC_ASSERT(a.accepted <= a.emitted);
    out.insert(out.end(), picks.begin(), picks.begin() + a.emitted);
    finish = a.finish;
  }
  RC_ASSERT(out == plain);
}

}  // namespace
}  // namespace lockstep::decode
