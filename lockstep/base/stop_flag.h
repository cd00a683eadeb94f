// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace lockstep {

// Asks long work to end soon. Safe to raise from a signal handler or another thread.
class StopFlag {
 public:
  void raise() { raised_.store(true, std::memory_order_relaxed); }
  void clear() { raised_.store(false, std::memory_order_relaxed); }
  bool raised() const { return raised_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> raised_{false};
};

}  // namespace lockstep
