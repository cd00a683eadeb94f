// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/limits.h"
#include "lockstep/ops/dot.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reference/reference_mixers.h"
#include "lockstep/ops/shapes.h"

namespace lockstep::ops::reference {
namespace {

using Floats = std::vector<float>;

Floats zeros(std::int64_t count) {
  return Floats(static_cast<std::size_t>(count));
}

// Inputs of the recurrence for one row: all heads.
struct DeltaRow {
  Floats q, k;            // [key_heads, key_dim], normalised and scaled
  Floats v;               // [value_heads, value_dim]
  Floats log_gate, beta;  // [value_heads]
};

// conv[c] = sum over taps in order of fma(input, weight), from +0; then SiLU. `conv` holds the
// kernel - 1 rows before this one and takes this one as its newest.
Floats convolve(const DeltaWeights& w, const float* row, Floats& conv) {
  const std::int64_t channels = w.shape.conv_channels();
  const std::int64_t kernel = w.shape.conv_kernel;
  Floats out = zeros(channels);
  for (std::int64_t c = 0; c < channels; ++c) {
    const float* taps = w.conv.data() + c * kernel;
    float sum = 0.0f;
    for (std::int64_t i = 0; i + 1 < kernel; ++i) {
      sum = std::fma(conv[static_cast<std::size_t>(i * channels + c)], taps[i], sum);
    }
    sum = std::fma(row[c], taps[kernel - 1], sum);
    out[static_cast<std::size_t>(c)] = silu(sum);
  }
  if (kernel > 1) {
    std::copy(conv.begin() + channels, conv.end(), conv.begin());
    std::copy(row, row + channels, conv.end() - channels);
  }
  return out;
}

// (x * (1 / sqrt(mean(x^2) + 1e-6))) * factor, per head.
Floats normalise_heads(const float* x, std::int64_t heads, std::int64_t dim, float factor) {
  constexpr float kEps = 1e-6f;
  Floats out = zeros(heads * dim);
  for (std::int64_t h = 0; h < heads; ++h) {
    const float* head = x + h * dim;
    const float scale = inverse_rms(dot(head, head, dim), dim, kEps);
    for (std::int64_t j = 0; j < dim; ++j) {
      out[static_cast<std::size_t>(h * dim + j)] = (head[j] * scale) * factor;
    }
  }
  return out;
}

DeltaRow read_row(const DeltaWeights& w, const float* projected, Floats& conv) {
  const DeltaShape& s = w.shape;
  const Floats u = convolve(w, projected, conv);
  const auto dim = static_cast<float>(s.key_dim);
  DeltaRow row;
  row.q = normalise_heads(u.data(), s.key_heads, s.key_dim, 1.0f / dim);
  row.k =
      normalise_heads(u.data() + s.qk_channels(), s.key_heads, s.key_dim, 1.0f / std::sqrt(dim));
  row.v.assign(u.begin() + 2 * s.qk_channels(), u.end());
  const float* b = projected + s.conv_channels() + s.v_channels();
  const float* a = b + s.value_heads;
  for (std::int64_t h = 0; h < s.value_heads; ++h) {
    const auto i = static_cast<std::size_t>(h);
    row.beta.push_back(sigmoid(b[h]));
    row.log_gate.push_back(-(exp_f32(w.a_log[i]) * softplus(a[h] + w.dt_bias[i])));
  }
  return row;
}

// One token of one head. The state is c S, and `next` is g c. In the recurrence's terms
// m = g c (S k), dl = beta (v - m), y = g c (S q) + dl (k q), which is the new state times q. The
// new state is g c (S + dl / (g c) k^T), or, when g c has become small, 1 (g c S + dl k^T).
void step_head(const DeltaShape& s, const DeltaRow& row, std::int64_t head, float* state,
               float& scale, float* y) {
  const std::int64_t key_head = head / (s.value_heads / s.key_heads);
  const float* k = row.k.data() + key_head * s.key_dim;
  const float* q = row.q.data() + key_head * s.key_dim;
  const float* v = row.v.data() + head * s.value_dim;
  const float beta = row.beta[static_cast<std::size_t>(head)];
  const float next = exp_f32(row.log_gate[static_cast<std::size_t>(head)]) * scale;
  const bool small = next < kDeltaScaleMin;
  const float inverse = 1.0f / next;
  const float key_query = dot(k, q, s.key_dim);
  for (std::int64_t d = 0; d < s.value_dim; ++d) {
    float* line = state + d * s.key_dim;
    const float change = beta * (v[d] - next * dot(line, k, s.key_dim));
    y[d] = std::fma(change, key_query, next * dot(line, q, s.key_dim));
    for (std::int64_t j = 0; j < s.key_dim; ++j) {
      line[j] = small ? std::fma(change, k[j], next * line[j])
                      : std::fma(change * inverse, k[j], line[j]);
    }
  }
  scale = small ? 1.0f : next;
}

// A chunk of n rows of one head (spec 3.4), with (I + A) U = beta (v - exp(G) S0 k) solved forward.
// y is [n] rows, `y_stride` apart.
void chunk_head(const DeltaShape& s, const std::vector<DeltaRow>& rows, std::int64_t head,
                float* state, float* y, std::int64_t y_stride) {
  const std::size_t n = rows.size();
  const std::int64_t key_head = head / (s.value_heads / s.key_heads);
  const std::int64_t dim = s.key_dim;
  const auto h = static_cast<std::size_t>(head);
  const auto key = [&](std::size_t i) { return rows[i].k.data() + key_head * dim; };
  const auto query = [&](std::size_t i) { return rows[i].q.data() + key_head * dim; };
  Floats log_sum(n);  // G
  for (std::size_t i = 0; i < n; ++i) {
    log_sum[i] = i == 0 ? rows[i].log_gate[h] : log_sum[i - 1] + rows[i].log_gate[h];
  }
  const auto decay = [&](std::size_t i, std::size_t j) { return exp_f32(log_sum[i] - log_sum[j]); };
  std::vector<Floats> u(n, zeros(s.value_dim));
  for (std::size_t i = 0; i < n; ++i) {
    const float beta = rows[i].beta[h];
    const float* v = rows[i].v.data() + head * s.value_dim;
    const float from_start = exp_f32(log_sum[i]);
    for (std::int64_t d = 0; d < s.value_dim; ++d) {
      const float old = from_start * dot(state + d * dim, key(i), dim);
      u[i][static_cast<std::size_t>(d)] = beta * (v[d] - old);
      y[static_cast<std::int64_t>(i) * y_stride + d] =
          from_start * dot(state + d * dim, query(i), dim);
    }
    for (std::size_t j = 0; j < i; ++j) {
      const float a = (beta * decay(i, j)) * dot(key(i), key(j), dim);
      for (std::size_t d = 0; d < u[i].size(); ++d)
        u[i][d] = std::fma(-a, u[j][d], u[i][d]);
    }
    for (std::size_t j = 0; j <= i; ++j) {
      const float a = decay(i, j) * dot(query(i), key(j), dim);
      for (std::size_t d = 0; d < u[i].size(); ++d) {
        float& out = y[static_cast<std::int64_t>(i) * y_stride + static_cast<std::int64_t>(d)];
        out = std::fma(a, u[j][d], out);
      }
    }
  }
  const float whole = exp_f32(log_sum[n - 1]);
  for (std::int64_t d = 0; d < s.value_dim; ++d) {
    float* line = state + d * dim;
    for (std::int64_t j = 0; j < dim; ++j)
      line[j] = whole * line[j];
    for (std::size_t i = 0; i < n; ++i) {
      const float change = decay(n - 1, i) * u[i][static_cast<std::size_t>(d)];
      for (std::int64_t j = 0; j < dim; ++j)
        line[j] = std::fma(change, key(i)[j], line[j]);
    }
  }
}

// out = silu(z) * (gamma * (y * (1 / sqrt(mean(y^2) + eps)))), per head, in place.
void gated_norm(const DeltaWeights& w, const float* z, float* out) {
  const std::int64_t dim = w.shape.value_dim;
  for (std::int64_t h = 0; h < w.shape.value_heads; ++h) {
    rms_norm_row(out + h * dim, w.norm.data(), w.norm_eps, dim, out + h * dim);
    for (std::int64_t d = 0; d < dim; ++d)
      out[h * dim + d] *= silu(z[h * dim + d]);
  }
}

}  // namespace

void delta_segment(const Segment& segment, const DeltaWeights& w, const float* projected,
                   DeltaLayer& layer, float* out) {
  const DeltaShape& s = w.shape;
  CHECK(layer.position == segment.position);
  const std::int64_t stride = delta_projected_width(s);
  const std::int64_t head_size = s.value_dim * s.key_dim;
  layer.window.clear();
  for (std::int64_t r = 0; r < segment.row_count;) {
    std::int64_t count = 1;
    if (segment.cls == SegmentClass::kPrefill) {
      const std::int64_t into = (segment.position + r) % limits::kChunkGrain;
      count = std::min(limits::kChunkGrain - into, segment.row_count - r);
    }
    if (segment.speculative) layer.window.push_back(layer.now);
    std::vector<DeltaRow> rows;
    for (std::int64_t i = r; i < r + count; ++i) {
      rows.push_back(read_row(w, projected + i * stride, layer.now.conv));
    }
    for (std::int64_t h = 0; h < s.value_heads; ++h) {
      float* state = layer.now.state.data() + h * head_size;
      float* y = out + r * s.v_channels() + h * s.value_dim;
      float& scale = layer.now.scale[static_cast<std::size_t>(h)];
      if (segment.cls == SegmentClass::kStep) {
        step_head(s, rows[0], h, state, scale, y);
      } else {
        for (std::int64_t i = 0; i < head_size; ++i)
          state[i] *= scale;
        scale = 1.0f;
        chunk_head(s, rows, h, state, y, s.v_channels());
      }
    }
    for (std::int64_t i = r; i < r + count; ++i) {
      gated_norm(w, projected + i * stride + s.conv_channels(), out + i * s.v_channels());
    }
    r += count;
  }
  layer.position += segment.row_count;
}

}  // namespace lockstep::ops::reference
