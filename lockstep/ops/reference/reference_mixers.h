// SPDX-License-Identifier: Apache-2.0
// The two sequence mixers, one segment at a time (spec 3.2, 3.3, 3.4). The order of operations
// written here is the definition; cpu/ follows it to the bit.
#pragma once

#include <cstdint>

#include "lockstep/ops/backend.h"
#include "lockstep/ops/reference/reference_state.h"
#include "lockstep/ops/rotary.h"

namespace lockstep::ops::reference {

// Rows of `projected` and `out` are the segment's own: row 0 is its first.
void delta_segment(const Segment& segment, const DeltaWeights& w, const float* projected,
                   DeltaLayer& layer, float* out);

struct RotaryRows {
  const float* cos;  // [rows, rotary_dim / 2], row 0 is the segment's first
  const float* sin;
};

// `row_stride` floats from one row's k | v to the next's.
void append_segment(const Segment& segment, const AttentionWeights& w, const float* kv,
                    std::int64_t row_stride, const RotaryRows& rotary, AttentionLayer& layer);
void attend_segment(const Segment& segment, const AttentionWeights& w, const float* projected,
                    const RotaryRows& rotary, AttentionLayer& layer, float* out);

// One row of x * (1 / sqrt(mean(x^2) + eps)) * gamma.
void rms_norm_row(const float* x, const float* gamma, float eps, std::int64_t width, float* out);

}  // namespace lockstep::ops::reference
