// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lockstep/ops/cpu/kernels.h"

namespace lockstep::ops::cpu {

std::int64_t expand_block_rows(std::int64_t cols) {
  // 32 Ki floats stay in the second-level cache of every CPU we know.
  constexpr std::int64_t kBlockFloats = 32768;
  return std::clamp<std::int64_t>(kBlockFloats / cols / 8 * 8, 8, 64);
}

std::int64_t dot_scratch_floats(std::int64_t cols) {
  return expand_block_rows(cols) * cols;
}

std::int64_t delta_scratch_floats(const DeltaShape& s) {
  // q, k; v, y, u; gates (7 vectors of a chunk); k k^T and q k^T; 4 rows of the state.
  return kChunk * (2 * s.key_dim + 3 * s.value_dim + 7 + 2 * kChunk) + 4 * s.key_dim;
}

std::int64_t attend_scratch_floats(const AttentionShape& s) {
  const std::int64_t group = std::min(kAttendHeads, s.query_heads / s.kv_heads);
  // Values so far and of one block, weights of one block, largest and sum.
  return kAttendRows * group * (2 * s.head_dim + kChunk + 2);
}

}  // namespace lockstep::ops::cpu
