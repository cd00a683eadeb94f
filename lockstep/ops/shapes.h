// SPDX-License-Identifier: Apache-2.0
// What every back end demands of its caller's arguments: CHECKs, since model/ is ours.
#pragma once

#include <cstdint>

#include "lockstep/ops/backend.h"

namespace lockstep::ops {

// Segments lie one after another, cover the batch's rows, and have states; rows is `rows`.
void check_batch(const Batch& batch, std::int64_t rows);
void check_delta(const Batch& batch, const DeltaWeights& w, const Tensor& projected,
                 const Tensor& out);
void check_attention(const Batch& batch, const AttentionWeights& w);

// Widths of the projected rows that delta() and attend() read.
std::int64_t delta_projected_width(const DeltaShape& shape);
std::int64_t attention_projected_width(const AttentionShape& shape);

// Matrices of one weight: all have the same number of columns. Returns the rows of all.
std::int64_t check_parts(std::span<const quant::MatrixView> parts);

// [rows, cols] of every expert, in one format.
void check_bank(std::span<const quant::MatrixView> experts);

}  // namespace lockstep::ops
