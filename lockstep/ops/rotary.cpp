// SPDX-License-Identifier: Apache-2.0
#include "lockstep/ops/rotary.h"

#include <cmath>

#include "lockstep/base/check.h"

namespace lockstep::ops {

const RotaryTable& RotaryCache::get(const Batch& batch, const AttentionWeights& weights) {
  if (batch.coordinates == coordinates_ && weights.inv_freq == inv_freq_ && weights.axis == axis_) {
    return table_;
  }
  coordinates_ = batch.coordinates;
  inv_freq_ = weights.inv_freq;
  axis_ = weights.axis;
  const std::size_t pairs = inv_freq_.size();
  const auto rows = static_cast<std::size_t>(batch.rows);
  CHECK(axis_.size() == pairs && coordinates_.size() == rows * 3);
  table_.cos.resize(rows * pairs);
  table_.sin.resize(rows * pairs);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t d = 0; d < pairs; ++d) {
      const float angle = static_cast<float>(coordinates_[row * 3 + axis_[d]]) * inv_freq_[d];
      table_.cos[row * pairs + d] = std::cos(angle);
      table_.sin[row * pairs + d] = std::sin(angle);
    }
  }
  return table_;
}

}  // namespace lockstep::ops
