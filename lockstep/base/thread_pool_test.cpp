// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

TEST(ThreadPool, CoversEveryIndexOnceForOddCountsAndGrains) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (std::int64_t count : {0, 1, 2, 5, 63, 64, 65, 1000}) {
      for (std::int64_t grain : {1, 3, 64}) {
        std::vector<int> hits(static_cast<std::size_t>(count), 0);
        pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
          EXPECT_EQ(begin % grain, 0);
          for (std::int64_t i = begin; i < end; ++i)
            ++hits[static_cast<std::size_t>(i)];
        });
        for (int h : hits)
          EXPECT_EQ(h, 1);
      }
    }
  }
}

TEST(ThreadPool, WakesWorkersThatWentToSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::vector<int> hits(12, 0);
    pool.parallel_for(12, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        hits[static_cast<std::size_t>(i)] = 1;
    });
    for (int h : hits)
      EXPECT_EQ(h, 1);
  }
}

TEST(ThreadPool, SurvivesManyShortLoops) {
  ThreadPool pool(2);
  std::int64_t sums[2] = {0, 0};
  for (int i = 0; i < 20000; ++i) {
    pool.parallel_for(2, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = begin; j < end; ++j)
        ++sums[j];
    });
  }
  EXPECT_EQ(sums[0], 20000);
  EXPECT_EQ(sums[1], 20000);
}

// A thread that comes late for a small loop must not take a piece of the larger one after it.
TEST(ThreadPool, LoopsOfChangingSizeRunEveryIndexOnce) {
  for (const int threads : {2, 5, 16}) {
    ThreadPool pool(threads);
    std::vector<std::atomic<int>> hits(64);
    for (int round = 0; round < 3000; ++round) {
      const std::int64_t count = round % 2 == 0 ? 2 : 2 + round % 62;
      pool.parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
        if (round % 3 == 0) std::this_thread::yield();  // lets late threads in
        for (std::int64_t i = begin; i < end; ++i)
          hits[static_cast<std::size_t>(i)].fetch_add(1);
      });
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(hits[static_cast<std::size_t>(i)].exchange(0), 1)
            << threads << " threads, round " << round << ", index " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
