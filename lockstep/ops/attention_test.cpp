// SPDX-License-Identifier: Apache-2.0
// The attention verb against its definition (spec 3.2), and the cache of the MTP head.
#include <algorithm>
#include <cmath>

#include "lockstep/ops/mixer_test_data.h"

namespace lockstep::ops {
namespace {

using Doubles = std::vector<double>;

Doubles norm_and_turn(const float* x, const std::vector<float>& gamma, const AttentionWeights& w,
                      const std::int32_t* coordinates) {
  const auto dim = static_cast<std::size_t>(w.shape.head_dim);
  double squares = 0;
  for (std::size_t i = 0; i < dim; ++i)
    squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  Doubles y(dim);
  for (std::size_t i = 0; i < dim; ++i) {
    y[i] = static_cast<double>(x[i]) * static_cast<double>(gamma[i]) /
           std::sqrt(squares / static_cast<double>(dim) + 1e-6);
  }
  const std::size_t half = w.inv_freq.size();
  for (std::size_t d = 0; d < half; ++d) {
    const double angle =
        static_cast<double>(static_cast<float>(coordinates[w.axis[d]]) * w.inv_freq[d]);
    const double a = y[d], b = y[d + half];
    y[d] = a * std::cos(angle) - b * std::sin(angle);
    y[d + half] = b * std::cos(angle) + a * std::sin(angle);
  }
  return y;
}

// Causal attention over all rows, with a plain softmax.
TEST(Attention, FollowsTheDefinition) {
  const Mixers mixers = odd_mixers();
  const AttentionWeights& w = mixers.attention;
  const AttentionShape& s = w.shape;
  const std::int64_t rows = 130, dim = s.head_dim;
  const auto backend = reference_backend();
  const auto state = backend->make_state(mixers.shape());
  const std::vector<float> found =
      step(*backend, mixers,
           {.state = state.get(), .seed = 9, .cls = SegmentClass::kPrefill, .rows = rows});
  const float* attention = found.data() + rows * mixers.delta.shape.v_channels();
  std::vector<Doubles> keys, values;
  for (std::int64_t p = 0; p < rows; ++p) {
    const std::vector<float> in = input_row(59, p, attention_projected_width(s));
    const auto t = static_cast<std::int32_t>(p);
    const std::int32_t coordinates[3] = {t, t / 2, t / 3 + 1};
    const float* k = in.data() + 2 * s.query_heads * dim;
    const float* v = k + s.kv_heads * dim;
    for (std::int64_t h = 0; h < s.kv_heads; ++h) {
      keys.push_back(norm_and_turn(k + h * dim, w.k_norm, w, coordinates));
      values.emplace_back(v + h * dim, v + (h + 1) * dim);
    }
    double error = 0, norm = 0;
    for (std::int64_t h = 0; h < s.query_heads; ++h) {
      const Doubles q = norm_and_turn(in.data() + 2 * h * dim, w.q_norm, w, coordinates);
      const std::int64_t kv_head = h / (s.query_heads / s.kv_heads);
      Doubles weights, out(static_cast<std::size_t>(dim));
      double sum = 0;
      for (std::int64_t j = 0; j <= p; ++j) {
        const Doubles& key = keys[static_cast<std::size_t>(j * s.kv_heads + kv_head)];
        double score = 0;
        for (std::size_t d = 0; d < q.size(); ++d)
          score += q[d] * key[d];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
        sum += weights.back();
      }
      for (std::int64_t j = 0; j <= p; ++j) {
        const Doubles& value = values[static_cast<std::size_t>(j * s.kv_heads + kv_head)];
        for (std::size_t d = 0; d < out.size(); ++d) {
          out[d] += weights[static_cast<std::size_t>(j)] / sum * value[d];
        }
      }
      for (std::int64_t d = 0; d < dim; ++d) {
        const double gate =
            static_cast<double>(in[static_cast<std::size_t>((2 * h + 1) * dim + d)]);
        const double expected = out[static_cast<std::size_t>(d)] / (1 + std::exp(-gate));
        error += std::pow(attention[(p * s.query_heads + h) * dim + d] - expected, 2);
        norm += expected * expected;
      }
    }
    // Scores are sums of 35 products of magnitude one, weights at most 130 of them: 256 u.
    EXPECT_LT(std::sqrt(error / norm), 256 * 0x1p-24) << "row " << p;
  }
}

// With values that are all one the weights' sum shows: exactly the gate, whatever the scores.
TEST(Attention, WeightsSumToOneUnderExtremeScores) {
  Noise noise(20);
  AttentionWeights w =
      attention_weights({.query_heads = 1, .kv_heads = 1, .head_dim = 16, .rotary_dim = 0}, noise);
  for (const float size : {0.0f, 1.0f, 1e3f, 1e18f}) {
    w.q_norm.assign(16, size);
    expect_bitwise([&](Backend& backend) {
      const auto state = backend.make_state(
          {.delta_layers = {}, .attention_layers = {w.shape}, .target_attention_layers = 1});
      Batch batch;
      batch.rows = 200;
      batch.coordinates.assign(600, 0);
      batch.segments = {{.cls = SegmentClass::kPrefill,
                         .row_begin = 0,
                         .row_count = 200,
                         .position = 0,
                         .state = state.get(),
                         .speculative = false}};
      Noise inputs(21);
      std::vector<float> in;
      for (int r = 0; r < 200; ++r) {
        append(in, inputs.floats(16));               // query
        append(in, std::vector<float>(16, 200.0f));  // gate: sigmoid is one
        append(in, inputs.floats(16));               // key
        append(in, std::vector<float>(16, 1.0f));    // value
      }
      const Tensor out = backend.scratch(200, 16);
      backend.attend(batch, 0, w, upload_new(backend, in, 200), out);
      const std::vector<float> values = download_all(backend, out);
      // A sum of up to 200 weights on both sides of the division.
      for (const float value : values)
        EXPECT_NEAR(value, 1.0f, 2 * 200 * 0x1p-24);
      return values;
    });
  }
}

// append_kv leaves what attend would have left, and truncate_kv forgets.
TEST(Attention, PrimedHeadCacheEqualsAttendedOne) {
  const Mixers mixers = odd_mixers();
  const AttentionWeights& w = mixers.attention;
  const std::int64_t width = attention_projected_width(w.shape);
  const std::int64_t kv_begin = 2 * w.shape.query_heads * w.shape.head_dim;
  Noise noise(22);
  const std::vector<float> in = noise.floats(70 * width);
  std::vector<float> kv;
  for (std::int64_t r = 0; r < 70; ++r) {
    kv.insert(kv.end(), in.begin() + r * width + kv_begin, in.begin() + (r + 1) * width);
  }
  const std::vector<float> next = noise.floats(width);
  const auto run = [&](Backend& backend, bool prime) {
    const auto state = backend.make_state(mixers.shape());
    Batch batch;
    batch.rows = 70;
    for (std::int32_t i = 0; i < 210; ++i)
      batch.coordinates.push_back(i / 3);
    batch.segments = {{.cls = SegmentClass::kPrefill,
                       .row_begin = 0,
                       .row_count = 70,
                       .position = 0,
                       .state = state.get(),
                       .speculative = false}};
    const Tensor out = backend.scratch(70, w.shape.query_heads * w.shape.head_dim);
    if (prime) {
      backend.append_kv(batch, 1, w, upload_new(backend, kv, 70));
    } else {
      backend.attend(batch, 1, w, upload_new(backend, in, 70), out);
    }
    EXPECT_EQ(state->kv_length(1), 70);
    EXPECT_EQ(state->kv_length(0), 0);
    EXPECT_EQ(state->position(), 0);  // the head's rows are not the target's
    state->truncate_kv(1, 65);
    EXPECT_EQ(state->kv_length(1), 65);
    batch.rows = 1;
    batch.coordinates = {65, 65, 65};
    batch.segments = {{.cls = SegmentClass::kStep,
                       .row_begin = 0,
                       .row_count = 1,
                       .position = 65,
                       .state = state.get(),
                       .speculative = false}};
    const Tensor row = backend.scratch(1, out.width);
    backend.attend(batch, 1, w, upload_new(backend, next, 1), row);
    return download_all(backend, row);
  };
  expect_bitwise([&](Backend& backend) { return run(backend, true); });
  const auto backend = cpu_backend("", 2);
  EXPECT_TRUE(same_bits(run(*backend, false), run(*backend, true)));
}

}  // namespace
}  // namespace lockstep::ops
