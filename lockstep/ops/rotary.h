// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of the rotary embedding. Every back end takes them from here, so the angle's
// rounding (float product, then the C library's function) is the same in all.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/ops/backend.h"

namespace lockstep::ops {

// cos and sin of coordinate[axis[d]] * inv_freq[d], both [rows, rotary_dim / 2].
struct RotaryTable {
  std::vector<float> cos, sin;
};

class RotaryCache {
 public:
  // The table of these coordinates; computed again only if they differ from the last call's.
  const RotaryTable& get(const Batch& batch, const AttentionWeights& weights);

 private:
  std::vector<std::int32_t> coordinates_;
  std::vector<float> inv_freq_;
  std::vector<std::uint8_t> axis_;
  RotaryTable table_;
};

}  // namespace lockstep::ops
