// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {
namespace {

inline void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A stage of a small model lasts microseconds, less than a futex wake-up: spin first, then sleep.
constexpr int kSpins = 4000;
constexpr int kYields = 64;

}  // namespace

struct ThreadPool::Impl {
  int thread_count = 1;
  std::vector<std::thread> workers;

  // The job. Written by the caller before `epoch` is raised, read by workers after they see it.
  Function function = nullptr;
  void* context = nullptr;
  std::int64_t count = 0;
  std::int64_t piece = 0;

  alignas(64) std::atomic<std::uint64_t> epoch{0};
  alignas(64) std::atomic<int> running{0};
  alignas(64) std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable wake;

  void execute(int thread) {
    const std::int64_t begin = std::min(count, piece * thread);
    const std::int64_t end = std::min(count, begin + piece);
    if (begin < end) function(context, begin, end);
  }

  void wait_for_epoch(std::uint64_t seen) {
    for (int i = 0; i < kSpins; ++i) {
      if (epoch.load(std::memory_order_acquire) != seen) return;
      cpu_relax();
    }
    for (int i = 0; i < kYields; ++i) {
      if (epoch.load(std::memory_order_acquire) != seen) return;
      std::this_thread::yield();
    }
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(lock, [&] { return epoch.load(std::memory_order_seq_cst) != seen; });
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }

  void worker(int thread) {
    std::uint64_t seen = 0;
    for (;;) {
      wait_for_epoch(seen);
      ++seen;
      if (stop.load(std::memory_order_acquire)) return;
      execute(thread);
      running.fetch_sub(1, std::memory_order_release);
    }
  }

  void raise_epoch() {
    epoch.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) > 0) {
      // Taking the lock orders this wake after a sleeper's last look at `epoch`.
      { std::lock_guard lock(mutex); }
      wake.notify_all();
    }
  }
};

ThreadPool::ThreadPool(int thread_count) : impl_(std::make_unique<Impl>()) {
  CHECK(thread_count >= 0);
  if (thread_count == 0) {
    thread_count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  impl_->thread_count = thread_count;
  for (int t = 1; t < thread_count; ++t) {
    impl_->workers.emplace_back([impl = impl_.get(), t] { impl->worker(t); });
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true, std::memory_order_release);
  impl_->raise_epoch();
  for (std::thread& thread : impl_->workers) thread.join();
}

int ThreadPool::thread_count() const { return impl_->thread_count; }

void ThreadPool::run(std::int64_t count, std::int64_t grain, Function function, void* context) {
  CHECK(grain > 0);
  if (count <= 0) return;
  if (impl_->thread_count == 1 || count <= grain) {
    function(context, 0, count);
    return;
  }
  const std::int64_t grains = (count + grain - 1) / grain;
  const std::int64_t threads = std::min<std::int64_t>(impl_->thread_count, grains);
  impl_->function = function;
  impl_->context = context;
  impl_->count = count;
  impl_->piece = (grains + threads - 1) / threads * grain;
  impl_->running.store(impl_->thread_count - 1, std::memory_order_relaxed);
  impl_->raise_epoch();
  impl_->execute(0);
  for (int i = 0; impl_->running.load(std::memory_order_acquire) != 0; ++i) {
    if (i < kSpins) {
      cpu_relax();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace lockstep
