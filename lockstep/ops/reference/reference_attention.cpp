// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
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

// Norm, then rotation of pairs (d, d + rotary_dim / 2): x[d] cos - x[d + h] sin, and
// x[d + h] cos + x[d] sin, each as fma(x, cos, product of the other).
void norm_and_turn(const float* x, const Floats& gamma, const AttentionWeights& w, const float* cos,
                   const float* sin, float* out) {
  rms_norm_row(x, gamma.data(), w.norm_eps, w.shape.head_dim, out);
  const std::int64_t half = w.shape.rotary_dim / 2;
  for (std::int64_t d = 0; d < half; ++d) {
    const float a = out[d];
    const float b = out[d + half];
    out[d] = std::fma(a, cos[d], -(b * sin[d]));
    out[d + half] = std::fma(b, cos[d], a * sin[d]);
  }
}

// Running softmax: the largest score, the sum of exp(score - largest), and the weighted values.
struct Partial {
  float largest = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;
  Floats values;
};

struct HeadView {
  const AttentionLayer& layer;
  std::int64_t kv_head;
  const float* key(std::int64_t j) const { return row(layer.keys, j); }
  const float* value(std::int64_t j) const { return row(layer.values, j); }

 private:
  const float* row(const Floats& rows, std::int64_t j) const {
    return rows.data() + (j * layer.shape.kv_heads + kv_head) * layer.shape.head_dim;
  }
};

// Positions [begin, end) of one chunk, by themselves. The sum of weights runs in 16 lanes by
// position within the chunk, then reduce_lanes; values are added with j ascending.
Partial attend_chunk(const float* q, const HeadView& head, std::int64_t begin, std::int64_t end) {
  const std::int64_t dim = head.layer.shape.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  Partial part;
  part.values.resize(static_cast<std::size_t>(dim));
  Floats weight;
  for (std::int64_t j = begin; j < end; ++j) {
    weight.push_back(dot(q, head.key(j), dim) * scale);
    part.largest = std::max(part.largest, weight.back());
  }
  float lanes[kDotLanes] = {};
  for (std::size_t i = 0; i < weight.size(); ++i) {
    weight[i] = exp_f32(weight[i] - part.largest);
    lanes[i % kDotLanes] += weight[i];
  }
  part.sum = reduce_lanes(lanes);
  for (std::int64_t j = begin; j < end; ++j) {
    const float p = weight[static_cast<std::size_t>(j - begin)];
    for (std::size_t d = 0; d < part.values.size(); ++d) {
      part.values[d] = std::fma(p, head.value(j)[d], part.values[d]);
    }
  }
  return part;
}

// total = total * exp(old largest - new) + part * exp(part's largest - new).
void merge(const Partial& part, Partial& total) {
  const float largest = std::max(total.largest, part.largest);
  const float keep = exp_f32(total.largest - largest);
  const float take = exp_f32(part.largest - largest);
  total.largest = largest;
  total.sum = std::fma(total.sum, keep, part.sum * take);
  for (std::size_t d = 0; d < total.values.size(); ++d) {
    total.values[d] = std::fma(total.values[d], keep, part.values[d] * take);
  }
}

}  // namespace

void append_segment(const Segment& segment, const AttentionWeights& w, const float* kv,
                    std::int64_t row_stride, const RotaryRows& rotary, AttentionLayer& layer) {
  const AttentionShape& s = w.shape;
  CHECK(layer.length == segment.position);
  const std::int64_t size = s.kv_heads * s.head_dim;
  const std::int64_t pairs = s.rotary_dim / 2;
  for (std::int64_t r = 0; r < segment.row_count; ++r) {
    const float* k = kv + r * row_stride;
    const float* v = k + size;
    const std::size_t old = layer.keys.size();
    layer.keys.resize(old + static_cast<std::size_t>(size));
    for (std::int64_t h = 0; h < s.kv_heads; ++h) {
      norm_and_turn(k + h * s.head_dim, w.k_norm, w, rotary.cos + r * pairs, rotary.sin + r * pairs,
                    layer.keys.data() + old + h * s.head_dim);
    }
    layer.values.insert(layer.values.end(), v, v + size);
    ++layer.length;
  }
}

void attend_segment(const Segment& segment, const AttentionWeights& w, const float* projected,
                    const RotaryRows& rotary, AttentionLayer& layer, float* out) {
  const AttentionShape& s = w.shape;
  const std::int64_t stride = attention_projected_width(s);
  const std::int64_t pairs = s.rotary_dim / 2;
  append_segment(segment, w, projected + 2 * s.query_heads * s.head_dim, stride, rotary, layer);
  Floats q(static_cast<std::size_t>(s.head_dim));
  for (std::int64_t r = 0; r < segment.row_count; ++r) {
    for (std::int64_t h = 0; h < s.query_heads; ++h) {
      const float* query = projected + r * stride + 2 * h * s.head_dim;
      const float* gate = query + s.head_dim;
      norm_and_turn(query, w.q_norm, w, rotary.cos + r * pairs, rotary.sin + r * pairs, q.data());
      const HeadView head = {layer, h / (s.query_heads / s.kv_heads)};
      const std::int64_t seen = segment.position + r + 1;
      Partial total;
      total.values.resize(static_cast<std::size_t>(s.head_dim));
      for (std::int64_t begin = 0; begin < seen; begin += limits::kChunkGrain) {
        const std::int64_t end = std::min(seen, begin + limits::kChunkGrain);
        merge(attend_chunk(q.data(), head, begin, end), total);
      }
      const float scale = 1.0f / total.sum;
      float* o = out + (r * s.query_heads + h) * s.head_dim;
      for (std::int64_t d = 0; d < s.head_dim; ++d) {
        o[d] = (total.values[static_cast<std::size_t>(d)] * scale) * sigmoid(gate[d]);
      }
    }
  }
}

}  // namespace lockstep::ops::reference
