// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace lockstep::ops::cpu {

inline constexpr std::size_t kCacheLineBytes = 64;

struct AlignedDelete {
  void operator()(float* p) const { ::operator delete[](p, std::align_val_t{kCacheLineBytes}); }
};
using AlignedFloats = std::unique_ptr<float[], AlignedDelete>;

// Uninitialised, at the start of a cache line.
inline AlignedFloats aligned_floats(std::size_t count) {
  void* p = ::operator new[](count * sizeof(float), std::align_val_t{kCacheLineBytes});
  return AlignedFloats(static_cast<float*>(p));
}

// Memory that is given out piece by piece and taken back all at once. After a few rounds of the
// same work it no longer allocates.
class Arena {
 public:
  // Starts at a cache line; contents undefined.
  float* take(std::int64_t count);
  void reset();

 private:
  struct Block {
    AlignedFloats data;
    std::size_t size = 0;
  };
  void grow(std::size_t count);

  std::vector<Block> blocks_;
  std::size_t used_ = 0;   // of the last block
  std::size_t total_ = 0;  // of all blocks
};

}  // namespace lockstep::ops::cpu
