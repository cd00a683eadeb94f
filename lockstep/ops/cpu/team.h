// SPDX-License-Identifier: Apache-2.0
// Threads of the CPU back end: static splits, so what a thread computes never depends on timing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lockstep/base/thread_pool.h"
#include "lockstep/ops/cpu/arena.h"

namespace lockstep::ops::cpu {

struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// Part `part` of `parts` of [0, count), cut at multiples of `grain`.
inline Range split(std::int64_t count, std::int64_t grain, int part, int parts) {
  const std::int64_t grains = (count + grain - 1) / grain;
  return {std::min(count, grains * part / parts * grain),
          std::min(count, grains * (part + 1) / parts * grain)};
}

class Team {
 public:
  // 0: all logical CPUs.
  explicit Team(int threads) : pool_(threads) {
    scratch_.resize(static_cast<std::size_t>(pool_.thread_count()));
  }

  // Calls body(part, parts) for every part, mostly each on its own thread (a part whose thread does
  // not get to run is taken over by another). `work` is in multiply-adds and
  // decides how many parts are worth the hand-over.
  template <class Body>
  void run(std::int64_t work, Body&& body) {
    const int parts =
        static_cast<int>(std::clamp<std::int64_t>(work / kWorkPerThread, 1, pool_.thread_count()));
    if (parts == 1) return body(0, 1);
    pool_.parallel_for(parts, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part)
        body(static_cast<int>(part), parts);
    });
  }

  // Memory of one part; the same piece again until a larger one is asked for. Contents undefined.
  float* scratch(int part, std::int64_t floats) {
    Scratch& s = scratch_[static_cast<std::size_t>(part)];
    const auto size = static_cast<std::size_t>(floats);
    if (s.size < size) {
      s.data = aligned_floats(size);
      s.size = size;
    }
    return s.data.get();
  }

  int threads() const { return pool_.thread_count(); }

 private:
  // About 2 microseconds of one core: a hand-over costs a fraction of one.
  static constexpr std::int64_t kWorkPerThread = 50'000;

  struct alignas(kCacheLineBytes) Scratch {
    AlignedFloats data;
    std::size_t size = 0;
  };

  ThreadPool pool_;
  std::vector<Scratch> scratch_;
};

}  // namespace lockstep::ops::cpu
