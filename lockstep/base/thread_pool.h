// SPDX-License-Identifier: Apache-2.0
// A fixed team of threads for fork-join loops. What a range computes may not depend on how it
// is cut, so results are the same for every thread count.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace lockstep {

class ThreadPool {
 public:
  // `thread_count` includes the caller; 1 runs everything inline. 0 takes all logical CPUs.
  explicit ThreadPool(int thread_count);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int thread_count() const;

  // Calls body(begin, end) over disjoint pieces that cover [0, count). Pieces are multiples of
  // `grain` (except the last). Each thread has its own piece from call to call, and takes over
  // that of a thread that does not get to run: on a busy machine the caller works alone rather
  // than wait. Returns when all are done. Runs inline when count <= grain. Not reentrant; one
  // caller at a time.
  template <class Body>
  void parallel_for(std::int64_t count, std::int64_t grain, Body&& body) {
    using B = std::remove_reference_t<Body>;
    run(
        count, grain,
        [](void* context, std::int64_t begin, std::int64_t end) {
          (*static_cast<B*>(context))(begin, end);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Function = void (*)(void* context, std::int64_t begin, std::int64_t end);
  void run(std::int64_t count, std::int64_t grain, Function function, void* context);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
