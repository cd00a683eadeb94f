// SPDX-License-Identifier: Apache-2.0
// Fixtures for the tests of delta and attend: weights, sequences whose inputs depend on seed and
// position alone, and one call of both verbs.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "lockstep/ops/shapes.h"
#include "lockstep/ops/test_data.h"

namespace lockstep::ops {

struct Mixers {
  DeltaWeights delta;
  AttentionWeights attention;
  StateShape shape() const {
    return {.delta_layers = {delta.shape},
            .attention_layers = {attention.shape, attention.shape},
            .target_attention_layers = 1};
  }
};

inline AttentionWeights attention_weights(const AttentionShape& shape, Noise& noise) {
  AttentionWeights w;
  w.shape = shape;
  w.q_norm = noise.floats(shape.head_dim, 0.5f, 1.5f);
  w.k_norm = noise.floats(shape.head_dim, 0.5f, 1.5f);
  for (std::int64_t d = 0; d < shape.rotary_dim / 2; ++d) {
    w.inv_freq.push_back(
        std::pow(1e4f, -static_cast<float>(2 * d) / static_cast<float>(shape.rotary_dim)));
    w.axis.push_back(static_cast<std::uint8_t>(d % 3));
  }
  w.norm_eps = 1e-6f;
  return w;
}

inline DeltaWeights delta_weights(const DeltaShape& shape, Noise& noise) {
  DeltaWeights w;
  w.shape = shape;
  w.conv = noise.floats(shape.conv_channels() * shape.conv_kernel);
  w.a_log = noise.floats(shape.value_heads, -2.0f, 2.0f);
  w.dt_bias = noise.floats(shape.value_heads, -3.0f, 1.0f);
  w.norm = noise.floats(shape.value_dim, 0.5f, 1.5f);
  w.norm_eps = 1e-6f;
  return w;
}

// The demo model's shape, and one in which nothing is a multiple of 16.
inline Mixers demo_mixers() {
  Noise noise(1);
  return {
      .delta = delta_weights(
          {.key_heads = 2, .value_heads = 4, .key_dim = 128, .value_dim = 128, .conv_kernel = 4},
          noise),
      .attention = attention_weights(
          {.query_heads = 2, .kv_heads = 1, .head_dim = 256, .rotary_dim = 64}, noise)};
}
inline Mixers odd_mixers() {
  Noise noise(2);
  return {.delta = delta_weights(
              {.key_heads = 3, .value_heads = 6, .key_dim = 21, .value_dim = 19, .conv_kernel = 3},
              noise),
          .attention = attention_weights(
              {.query_heads = 6, .kv_heads = 2, .head_dim = 35, .rotary_dim = 10}, noise)};
}

// A run of rows of one sequence. Its inputs depend on the seed and the position alone.
struct Rows {
  SequenceState* state = nullptr;
  std::uint32_t seed = 0;
  SegmentClass cls = SegmentClass::kStep;
  std::int64_t rows = 0;
  bool speculative = false;
};

inline std::vector<float> input_row(std::uint32_t seed, std::int64_t position, std::int64_t width) {
  Noise noise(seed * 100'003u + static_cast<std::uint32_t>(position));
  return noise.floats(width, -2.0f, 2.0f);
}

// Both mixers over the runs, as one batch. Per run: its rows' outputs, delta then attention.
inline std::vector<std::vector<float>> step(Backend& backend, const Mixers& mixers,
                                            const std::vector<Rows>& runs) {
  backend.reset_scratch();
  const std::int64_t delta_width = delta_projected_width(mixers.delta.shape);
  const std::int64_t attention_width = attention_projected_width(mixers.attention.shape);
  Batch batch;
  std::vector<float> delta_in, attention_in;
  for (const Rows& run : runs) {
    const std::int64_t position = run.state->position();
    batch.segments.push_back({.cls = run.cls,
                              .row_begin = batch.rows,
                              .row_count = run.rows,
                              .position = position,
                              .state = run.state,
                              .speculative = run.speculative});
    batch.rows += run.rows;
    for (std::int64_t p = position; p < position + run.rows; ++p) {
      append(delta_in, input_row(run.seed, p, delta_width));
      append(attention_in, input_row(run.seed + 50, p, attention_width));
      const auto t = static_cast<std::int32_t>(p);
      for (const std::int32_t c : {t, t / 2, t / 3 + 1})
        batch.coordinates.push_back(c);
    }
  }
  const Tensor delta_out = backend.scratch(batch.rows, mixers.delta.shape.v_channels());
  const Tensor attention_out = backend.scratch(
      batch.rows, mixers.attention.shape.query_heads * mixers.attention.shape.head_dim);
  backend.delta(batch, 0, mixers.delta, upload_new(backend, delta_in, batch.rows), delta_out);
  backend.attend(batch, 0, mixers.attention, upload_new(backend, attention_in, batch.rows),
                 attention_out);
  std::vector<std::vector<float>> out;
  for (const Segment& s : batch.segments) {
    std::vector<float>& values = out.emplace_back();
    for (const Tensor& t : {delta_out, attention_out}) {
      append(values, download_all(backend, {.data = t.data + s.row_begin * t.width,
                                            .rows = s.row_count,
                                            .width = t.width}));
    }
  }
  return out;
}

inline std::vector<float> step(Backend& backend, const Mixers& mixers, const Rows& run) {
  return step(backend, mixers, std::vector<Rows>{run})[0];
}

}  // namespace lockstep::ops
