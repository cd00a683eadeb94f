// SPDX-License-Identifier: Apache-2.0
#include "lockstep/ops/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/base/check.h"
#include "lockstep/ops/dot.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reference/reference_mixers.h"
#include "lockstep/ops/reference/reference_state.h"
#include "lockstep/ops/shapes.h"
#include "lockstep/quant/codec.h"

namespace lockstep::ops::reference {
namespace {

using Floats = std::vector<float>;

class ReferenceMatrix final : public Matrix {
 public:
  explicit ReferenceMatrix(std::span<const quant::MatrixView> parts)
      : parts_(parts.begin(), parts.end()), rows_(check_parts(parts)) {}
  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return parts_[0].cols; }

  void expand_row(std::int64_t row, float* out) const {
    for (const quant::MatrixView& part : parts_) {
      if (row < part.rows) return quant::dequantize_row(part, row, out);
      row -= part.rows;
    }
    CHECK_MSG(false, "row beyond the matrix");
  }

 private:
  std::vector<quant::MatrixView> parts_;
  std::int64_t rows_;
};

class ReferenceBank final : public ExpertBank {
 public:
  explicit ReferenceBank(std::span<const quant::MatrixView> experts) {
    check_bank(experts);
    for (const quant::MatrixView& expert : experts)
      matrices.emplace_back(std::span(&expert, 1));
  }
  std::vector<ReferenceMatrix> matrices;
};

const ReferenceMatrix& cast(const Matrix& w) {
  return static_cast<const ReferenceMatrix&>(w);
}

const std::vector<ReferenceMatrix>& cast(const ExpertBank& bank) {
  return static_cast<const ReferenceBank&>(bank).matrices;
}

ReferenceState& cast(SequenceState* state) {
  return static_cast<ReferenceState&>(*state);
}

float* row_of(const Tensor& t, std::int64_t row) {
  return t.data + row * t.width;
}

// dot(x, w[n]) for every n.
Floats product(const float* x, const ReferenceMatrix& w) {
  Floats line(static_cast<std::size_t>(w.cols()));
  Floats out(static_cast<std::size_t>(w.rows()));
  for (std::int64_t n = 0; n < w.rows(); ++n) {
    w.expand_row(n, line.data());
    out[static_cast<std::size_t>(n)] = dot(x, line.data(), w.cols());
  }
  return out;
}

// silu(gate x) * (up x).
void gated_product(const float* x, const ReferenceMatrix& gate, const ReferenceMatrix& up,
                   float* out) {
  const Floats g = product(x, gate);
  const Floats u = product(x, up);
  for (std::size_t i = 0; i < g.size(); ++i)
    out[i] = silu(g[i]) * u[i];
}

// e^(logit - largest) / sum; the sum runs in 16 lanes by index, then reduce_lanes.
Floats softmax(const float* logits, std::int64_t count) {
  const float largest = *std::max_element(logits, logits + count);
  float lanes[kDotLanes] = {};
  Floats p(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    p[static_cast<std::size_t>(i)] = exp_f32(logits[i] - largest);
    lanes[i % kDotLanes] += p[static_cast<std::size_t>(i)];
  }
  const float sum = reduce_lanes(lanes);
  for (float& value : p)
    value = value / sum;
  return p;
}

// The `count` largest, in turn; of equals the lowest index. NaN is less than any number.
std::vector<std::int32_t> largest_first(Floats p, int count) {
  std::vector<std::int32_t> order;
  for (float& value : p)
    value = std::isnan(value) ? -1.0f : value;
  for (int i = 0; i < count; ++i) {
    const auto best = std::max_element(p.begin(), p.end());
    order.push_back(static_cast<std::int32_t>(best - p.begin()));
    *best = -2.0f;
  }
  return order;
}

}  // namespace

void rms_norm_row(const float* x, const float* gamma, float eps, std::int64_t width, float* out) {
  const float scale = inverse_rms(dot(x, x, width), width, eps);
  for (std::int64_t i = 0; i < width; ++i)
    out[i] = gamma[i] * (x[i] * scale);
}

std::unique_ptr<Matrix> ReferenceBackend::prepare(std::span<const quant::MatrixView> parts) {
  return std::make_unique<ReferenceMatrix>(parts);
}

std::unique_ptr<ExpertBank> ReferenceBackend::prepare_bank(
    std::span<const quant::MatrixView> experts) {
  return std::make_unique<ReferenceBank>(experts);
}

std::unique_ptr<SequenceState> ReferenceBackend::make_state(const StateShape& shape) {
  return std::make_unique<ReferenceState>(shape);
}

Tensor ReferenceBackend::scratch(std::int64_t rows, std::int64_t width) {
  CHECK(rows >= 0 && width > 0);
  floats_.push_back(std::make_unique<float[]>(static_cast<std::size_t>(rows * width)));
  return {.data = floats_.back().get(), .rows = rows, .width = width};
}

std::int32_t* ReferenceBackend::scratch_ids(std::int64_t count) {
  ids_.push_back(std::make_unique<std::int32_t[]>(static_cast<std::size_t>(count)));
  return ids_.back().get();
}

void ReferenceBackend::reset_scratch() {
  floats_.clear();
  ids_.clear();
}

void ReferenceBackend::download(const Tensor& from, std::span<float> to) {
  CHECK(static_cast<std::int64_t>(to.size()) == from.rows * from.width);
  std::copy(from.data, from.data + to.size(), to.begin());
}

void ReferenceBackend::upload(std::span<const float> from, Tensor to) {
  CHECK(static_cast<std::int64_t>(from.size()) == to.rows * to.width);
  std::copy(from.begin(), from.end(), to.data);
}

void ReferenceBackend::embed(const Matrix& table, std::span<const std::int32_t> ids, Tensor out) {
  CHECK(static_cast<std::int64_t>(ids.size()) == out.rows && table.cols() == out.width);
  for (std::int64_t r = 0; r < out.rows; ++r) {
    const std::int32_t id = ids[static_cast<std::size_t>(r)];
    CHECK(id >= 0 && id < table.rows());
    cast(table).expand_row(id, row_of(out, r));
  }
}

void ReferenceBackend::rms_norm(Tensor x, std::span<const float> gamma, float eps, Tensor out) {
  CHECK(static_cast<std::int64_t>(gamma.size()) == x.width && out.width == x.width);
  CHECK(out.rows == x.rows);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    rms_norm_row(row_of(x, r), gamma.data(), eps, x.width, row_of(out, r));
  }
}

void ReferenceBackend::linear(Tensor x, const Matrix& w, Tensor out) {
  CHECK(w.cols() == x.width && w.rows() == out.width && out.rows == x.rows);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const Floats y = product(row_of(x, r), cast(w));
    std::copy(y.begin(), y.end(), row_of(out, r));
  }
}

void ReferenceBackend::project(Tensor x, std::span<const float> gamma, float eps, const Matrix& w,
                               Tensor out) {
  const Tensor normed = scratch(x.rows, x.width);
  rms_norm(x, gamma, eps, normed);
  linear(normed, w, out);
}

void ReferenceBackend::delta(const Batch& batch, int layer, const DeltaWeights& w, Tensor projected,
                             Tensor out) {
  check_delta(batch, w, projected, out);
  for (const Segment& segment : batch.segments) {
    ReferenceState& state = cast(segment.state);
    delta_segment(segment, w, row_of(projected, segment.row_begin), state.delta_layer(layer),
                  row_of(out, segment.row_begin));
    state.advance(segment.position + segment.row_count);
  }
}

void ReferenceBackend::attend(const Batch& batch, int layer, const AttentionWeights& w,
                              Tensor projected, Tensor out) {
  check_attention(batch, w);
  CHECK(projected.rows == batch.rows && projected.width == attention_projected_width(w.shape));
  CHECK(out.rows == batch.rows && out.width == w.shape.query_heads * w.shape.head_dim);
  const RotaryTable& table = rotary_.get(batch, w);
  for (const Segment& segment : batch.segments) {
    ReferenceState& state = cast(segment.state);
    const std::int64_t offset = segment.row_begin * w.shape.rotary_dim / 2;
    attend_segment(segment, w, row_of(projected, segment.row_begin),
                   {table.cos.data() + offset, table.sin.data() + offset},
                   state.attention_layer(layer), row_of(out, segment.row_begin));
    if (state.is_target(layer)) state.advance(segment.position + segment.row_count);
  }
}

void ReferenceBackend::append_kv(const Batch& batch, int layer, const AttentionWeights& w,
                                 Tensor projected) {
  check_attention(batch, w);
  CHECK(projected.rows == batch.rows);
  CHECK(projected.width == 2 * w.shape.kv_heads * w.shape.head_dim);
  const RotaryTable& table = rotary_.get(batch, w);
  for (const Segment& segment : batch.segments) {
    ReferenceState& state = cast(segment.state);
    const std::int64_t offset = segment.row_begin * w.shape.rotary_dim / 2;
    append_segment(segment, w, row_of(projected, segment.row_begin), projected.width,
                   {table.cos.data() + offset, table.sin.data() + offset},
                   state.attention_layer(layer));
    if (state.is_target(layer)) state.advance(segment.position + segment.row_count);
  }
}

void ReferenceBackend::mix_out(Tensor y, const Matrix& w, Tensor x) {
  CHECK(w.cols() == y.width && w.rows() == x.width && y.rows == x.rows);
  for (std::int64_t r = 0; r < y.rows; ++r) {
    const Floats sum = product(row_of(y, r), cast(w));
    for (std::int64_t i = 0; i < x.width; ++i) {
      row_of(x, r)[i] += sum[static_cast<std::size_t>(i)];
    }
  }
}

RouterOutput ReferenceBackend::route(Tensor x, std::span<const float> gamma, float eps,
                                     const Matrix& w, int top_k) {
  const std::int64_t experts = w.rows() - 1;
  CHECK(top_k > 0 && top_k <= experts);
  RouterOutput out = {.normed = scratch(x.rows, x.width),
                      .experts = scratch_ids(x.rows * top_k),
                      .weights = scratch(x.rows, top_k),
                      .shared_gate = scratch(x.rows, 1)};
  rms_norm(x, gamma, eps, out.normed);
  std::set<std::int32_t> used;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const Floats logits = product(row_of(out.normed, r), cast(w));
    const Floats p = softmax(logits.data(), experts);
    const std::vector<std::int32_t> order = largest_first(p, top_k);
    float sum = 0.0f;  // of the selected, in slot order
    for (int i = 0; i < top_k; ++i) {
      const std::int32_t expert = order[static_cast<std::size_t>(i)];
      used.insert(expert);
      out.experts[r * top_k + i] = expert;
      sum += p[static_cast<std::size_t>(expert)];
    }
    for (int i = 0; i < top_k; ++i) {
      const auto expert = static_cast<std::size_t>(out.experts[r * top_k + i]);
      row_of(out.weights, r)[i] = p[expert] / sum;
    }
    row_of(out.shared_gate, r)[0] = sigmoid(logits[static_cast<std::size_t>(experts)]);
  }
  expert_union_ = static_cast<std::int64_t>(used.size());
  return out;
}

Tensor ReferenceBackend::experts_in(const RouterOutput& routed, const ExpertBank& gate,
                                    const ExpertBank& up, const Matrix& shared_gate,
                                    const Matrix& shared_up) {
  const std::int64_t top_k = routed.weights.width;
  const std::int64_t hidden = cast(gate)[0].rows();
  const Tensor out = scratch(routed.normed.rows, top_k * hidden + shared_gate.rows());
  for (std::int64_t r = 0; r < out.rows; ++r) {
    const float* x = row_of(routed.normed, r);
    for (std::int64_t slot = 0; slot < top_k; ++slot) {
      const auto expert = static_cast<std::size_t>(routed.experts[r * top_k + slot]);
      gated_product(x, cast(gate).at(expert), cast(up).at(expert), row_of(out, r) + slot * hidden);
    }
    gated_product(x, cast(shared_gate), cast(shared_up), row_of(out, r) + top_k * hidden);
  }
  return out;
}

void ReferenceBackend::experts_out(const RouterOutput& routed, Tensor activations,
                                   const ExpertBank& down, const Matrix& shared_down, Tensor x) {
  const std::int64_t top_k = routed.weights.width;
  const std::int64_t hidden = cast(down)[0].cols();
  CHECK(activations.width == top_k * hidden + shared_down.cols() && activations.rows == x.rows);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    Floats sum(static_cast<std::size_t>(x.width));
    const auto add = [&](const ReferenceMatrix& w, const float* activation, float weight) {
      const Floats y = product(activation, w);
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] = std::fma(weight, y[i], sum[i]);
    };
    for (std::int64_t slot = 0; slot < top_k; ++slot) {
      const auto expert = static_cast<std::size_t>(routed.experts[r * top_k + slot]);
      add(cast(down).at(expert), row_of(activations, r) + slot * hidden,
          row_of(routed.weights, r)[slot]);
    }
    add(cast(shared_down), row_of(activations, r) + top_k * hidden,
        row_of(routed.shared_gate, r)[0]);
    for (std::int64_t i = 0; i < x.width; ++i) {
      row_of(x, r)[i] += sum[static_cast<std::size_t>(i)];
    }
  }
}

void ReferenceBackend::fuse(Tensor e, std::span<const float> gamma_e, Tensor h,
                            std::span<const float> gamma_h, float eps, Tensor out) {
  CHECK(e.rows == h.rows && e.rows == out.rows && out.width == e.width + h.width);
  for (std::int64_t r = 0; r < out.rows; ++r) {
    rms_norm_row(row_of(e, r), gamma_e.data(), eps, e.width, row_of(out, r));
    rms_norm_row(row_of(h, r), gamma_h.data(), eps, h.width, row_of(out, r) + e.width);
  }
}

void ReferenceBackend::gather_rows(Tensor in, std::span<const std::int32_t> rows, Tensor out) {
  CHECK(static_cast<std::int64_t>(rows.size()) == out.rows && in.width == out.width);
  for (std::int64_t r = 0; r < out.rows; ++r) {
    const std::int32_t from = rows[static_cast<std::size_t>(r)];
    CHECK(from >= 0 && from < in.rows);
    std::copy(row_of(in, from), row_of(in, from) + in.width, row_of(out, r));
  }
}

}  // namespace lockstep::ops::reference
