// SPDX-License-Identifier: Apache-2.0
#include "lockstep/ops/cpu/arena.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::ops::cpu {
namespace {

constexpr std::size_t kLineFloats = kCacheLineBytes / sizeof(float);
constexpr std::size_t kBlockFloatsMin = std::size_t{1} << 16;

}  // namespace

void Arena::grow(std::size_t count) {
  // Doubling keeps the number of blocks of one round small.
  const std::size_t size = std::max({count, total_, kBlockFloatsMin});
  blocks_.push_back({.data = aligned_floats(size), .size = size});
  total_ += size;
  used_ = 0;
}

float* Arena::take(std::int64_t count) {
  CHECK(count >= 0);
  const std::size_t size =
      (static_cast<std::size_t>(count) + kLineFloats - 1) / kLineFloats * kLineFloats;
  if (blocks_.empty() || blocks_.back().size - used_ < size) grow(size);
  float* piece = blocks_.back().data.get() + used_;
  used_ += size;
  return piece;
}

void Arena::reset() {
  used_ = 0;
  if (blocks_.size() <= 1) return;
  const std::size_t all = total_;
  blocks_.clear();
  total_ = 0;
  grow(all);
}

}  // namespace lockstep::ops::cpu
