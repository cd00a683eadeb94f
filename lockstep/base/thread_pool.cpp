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

  // The job. Atomic because a late worker may look at it while the next one is being written; such
  // a worker finds every piece taken and never uses what it read.
  std::atomic<Function> function{nullptr};
  std::atomic<void*> context{nullptr};
  std::atomic<std::int64_t> count{0};
  std::atomic<std::int64_t> piece_size{0};

  // The job's number and its piece count in one word, so that nobody can pair the number of one job
  // with the count of another. Numbers only grow.
  static constexpr int kCountBits = 16;
  alignas(64) std::atomic<std::uint64_t> ticket{0};
  static int pieces_of(std::uint64_t ticket) {
    return static_cast<int>(ticket & ((1u << kCountBits) - 1));
  }
  // taken[p]: the last ticket for which piece p was taken. A job ends only when all its pieces
  // were, so a thread that comes late with an old ticket finds none left.
  std::unique_ptr<std::atomic<std::uint64_t>[]> taken;
  alignas(64) std::atomic<int> pieces_left{0};
  alignas(64) std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable wake;

  bool take(int piece, std::uint64_t now) {
    std::uint64_t seen = taken[piece].load(std::memory_order_relaxed);
    while (seen < now) {
      if (taken[piece].compare_exchange_weak(seen, now, std::memory_order_acq_rel)) return true;
    }
    return false;
  }

  // The thread's own piece first, so that data stays in its cache from call to call; then those of
  // threads that the system has not let run yet.
  void work(int thread, std::uint64_t now) {
    const int pieces = pieces_of(now);
    const int home = static_cast<int>(std::int64_t{thread} * pieces / thread_count);
    for (int i = 0; i < pieces; ++i) {
      const int piece = (home + i) % pieces;
      if (!take(piece, now)) continue;
      const std::int64_t size = piece_size.load(std::memory_order_relaxed);
      const std::int64_t begin = size * piece;
      const std::int64_t end = std::min(count.load(std::memory_order_relaxed), begin + size);
      function.load(std::memory_order_relaxed)(context.load(std::memory_order_relaxed), begin, end);
      pieces_left.fetch_sub(1, std::memory_order_release);
    }
  }

  void wait_for_ticket(std::uint64_t seen) {
    for (int i = 0; i < kSpins; ++i) {
      if (ticket.load(std::memory_order_acquire) != seen) return;
      cpu_relax();
    }
    for (int i = 0; i < kYields; ++i) {
      if (ticket.load(std::memory_order_acquire) != seen) return;
      std::this_thread::yield();
    }
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(lock, [&] { return ticket.load(std::memory_order_seq_cst) != seen; });
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }

  void worker(int thread) {
    for (std::uint64_t seen = 0;;) {
      wait_for_ticket(seen);
      if (stop.load(std::memory_order_acquire)) return;
      seen = ticket.load(std::memory_order_acquire);
      work(thread, seen);
    }
  }

  // Publishes a job of `pieces`; its fields are written before.
  std::uint64_t publish(int pieces) {
    const std::uint64_t number = (ticket.load(std::memory_order_relaxed) >> kCountBits) + 1;
    const std::uint64_t next = number << kCountBits | static_cast<std::uint64_t>(pieces);
    ticket.store(next, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) > 0) {
      // Taking the lock orders this wake after a sleeper's last look at `ticket`.
      {
        std::lock_guard lock(mutex);
      }
      wake.notify_all();
    }
    return next;
  }
};

ThreadPool::ThreadPool(int thread_count) : impl_(std::make_unique<Impl>()) {
  CHECK(thread_count >= 0);
  if (thread_count == 0) {
    thread_count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  impl_->thread_count = thread_count;
  impl_->taken =
      std::make_unique<std::atomic<std::uint64_t>[]>(static_cast<std::size_t>(thread_count));
  for (int t = 1; t < thread_count; ++t) {
    impl_->workers.emplace_back([impl = impl_.get(), t] { impl->worker(t); });
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true, std::memory_order_release);
  impl_->publish(0);
  for (std::thread& thread : impl_->workers)
    thread.join();
}

int ThreadPool::thread_count() const {
  return impl_->thread_count;
}

void ThreadPool::run(std::int64_t count, std::int64_t grain, Function function, void* context) {
  CHECK(grain > 0);
  if (count <= 0) return;
  if (impl_->thread_count == 1 || count <= grain) {
    function(context, 0, count);
    return;
  }
  const std::int64_t grains = (count + grain - 1) / grain;
  const std::int64_t pieces_max = std::min<std::int64_t>(impl_->thread_count, grains);
  const std::int64_t piece_size = (grains + pieces_max - 1) / pieces_max * grain;
  const auto pieces = static_cast<int>((count + piece_size - 1) / piece_size);
  impl_->function.store(function, std::memory_order_relaxed);
  impl_->context.store(context, std::memory_order_relaxed);
  impl_->count.store(count, std::memory_order_relaxed);
  impl_->piece_size.store(piece_size, std::memory_order_relaxed);
  impl_->pieces_left.store(pieces, std::memory_order_relaxed);
  impl_->work(0, impl_->publish(pieces));
  for (int i = 0; impl_->pieces_left.load(std::memory_order_acquire) != 0; ++i) {
    if (i < kSpins) {
      cpu_relax();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace lockstep
