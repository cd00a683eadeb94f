// SPDX-License-Identifier: Apache-2.0
#include "lockstep/ops/shapes.h"

#include "lockstep/base/check.h"
#include "lockstep/base/limits.h"

namespace lockstep::ops {

void check_batch(const Batch& batch, std::int64_t rows) {
  CHECK(batch.rows == rows);
  CHECK(batch.coordinates.size() == static_cast<std::size_t>(3 * rows));
  std::int64_t next = 0;
  for (const Segment& segment : batch.segments) {
    CHECK(segment.row_begin == next && segment.row_count > 0);
    CHECK(segment.state != nullptr && segment.position >= 0);
    if (segment.speculative) {
      CHECK(segment.cls == SegmentClass::kStep);
      CHECK(segment.row_count <= limits::kWindowRowsMax);
    }
    next += segment.row_count;
  }
  CHECK(next == rows);
}

void check_delta(const Batch& batch, const DeltaWeights& w, const Tensor& projected,
                 const Tensor& out) {
  check_batch(batch, projected.rows);
  const DeltaShape& s = w.shape;
  CHECK(s.key_heads > 0 && s.value_heads > 0 && s.value_heads % s.key_heads == 0);
  CHECK(s.conv_kernel > 0 && s.key_dim > 0 && s.value_dim > 0);
  CHECK(w.conv.size() == static_cast<std::size_t>(s.conv_channels() * s.conv_kernel));
  CHECK(w.a_log.size() == static_cast<std::size_t>(s.value_heads));
  CHECK(w.dt_bias.size() == w.a_log.size());
  CHECK(w.norm.size() == static_cast<std::size_t>(s.value_dim));
  CHECK(projected.width == delta_projected_width(s));
  CHECK(out.rows == projected.rows && out.width == s.v_channels());
}

void check_attention(const Batch& batch, const AttentionWeights& w) {
  check_batch(batch, batch.rows);
  const AttentionShape& s = w.shape;
  CHECK(s.kv_heads > 0 && s.query_heads > 0 && s.query_heads % s.kv_heads == 0);
  CHECK(s.head_dim > 0 && s.rotary_dim >= 0 && s.rotary_dim % 2 == 0);
  CHECK(s.rotary_dim <= s.head_dim);
  CHECK(w.q_norm.size() == static_cast<std::size_t>(s.head_dim));
  CHECK(w.k_norm.size() == w.q_norm.size());
  CHECK(w.inv_freq.size() == static_cast<std::size_t>(s.rotary_dim / 2));
  CHECK(w.axis.size() == w.inv_freq.size());
}

std::int64_t delta_projected_width(const DeltaShape& shape) {
  return shape.conv_channels() + shape.v_channels() + 2 * shape.value_heads;
}

std::int64_t attention_projected_width(const AttentionShape& shape) {
  return 2 * (shape.query_heads + shape.kv_heads) * shape.head_dim;
}

std::int64_t check_parts(std::span<const quant::MatrixView> parts) {
  CHECK(!parts.empty());
  std::int64_t rows = 0;
  for (const quant::MatrixView& part : parts) {
    CHECK(part.rows > 0 && part.cols > 0 && part.cols == parts[0].cols && part.codes != nullptr);
    CHECK(!part.format.quantized() || part.cols % part.format.group == 0);
    rows += part.rows;
  }
  return rows;
}

void check_bank(std::span<const quant::MatrixView> experts) {
  check_parts(experts);
  for (const quant::MatrixView& expert : experts) {
    CHECK(expert.rows == experts[0].rows && expert.format == experts[0].format);
  }
}

}  // namespace lockstep::ops
