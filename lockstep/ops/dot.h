// SPDX-License-Identifier: Apache-2.0
// The canonical f32 dot product: the one order of accumulation that every linear op, norm and
// attention score uses, on every instruction set, for every number of rows.
#pragma once

#include <cmath>
#include <cstdint>

namespace lockstep::ops {

inline constexpr int kDotLanes = 16;

// Folds 16 partial sums in a fixed tree: lane i takes i + 8, then i + 4, i + 2, i + 1.
inline float reduce_lanes(const float* lanes) {
  float s[8];
  for (int i = 0; i < 8; ++i)
    s[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i)
    s[i] = s[i] + s[i + 4];
  for (int i = 0; i < 2; ++i)
    s[i] = s[i] + s[i + 2];
  return s[0] + s[1];
}

// Lane l sums a[k] * b[k] over k = l, l + 16, l + 32 ... with fused multiply-adds, ascending, from
// +0; then reduce_lanes. A tail shorter than 16 feeds the low lanes only.
inline float dot(const float* a, const float* b, std::int64_t count) {
  float lanes[kDotLanes] = {};
  for (std::int64_t k = 0; k < count; ++k) {
    float& lane = lanes[k % kDotLanes];
    lane = std::fma(a[k], b[k], lane);
  }
  return reduce_lanes(lanes);
}

}  // namespace lockstep::ops
