// SPDX-License-Identifier: Apache-2.0
// The delta verb against its definition (spec 3.3).
#include <cmath>

#include "lockstep/ops/mixer_test_data.h"

namespace lockstep::ops {
namespace {

// The layer in double precision, row after row.
struct DoubleDelta {
  explicit DoubleDelta(const DeltaWeights& weights)
      : w(weights),
        state(static_cast<std::size_t>(w.shape.v_channels() * w.shape.key_dim)),
        conv(static_cast<std::size_t>((w.shape.conv_kernel - 1) * w.shape.conv_channels())) {}

  std::vector<double> row(const std::vector<float>& in) {
    const DeltaShape& s = w.shape;
    const auto channels = static_cast<std::size_t>(s.conv_channels());
    const auto kernel = static_cast<std::size_t>(s.conv_kernel);
    conv.insert(conv.end(), in.begin(), in.begin() + static_cast<long>(channels));
    std::vector<double> u(channels);
    for (std::size_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::size_t i = 0; i < kernel; ++i) {
        sum += conv[i * channels + c] * static_cast<double>(w.conv[c * kernel + i]);
      }
      u[c] = sum / (1 + std::exp(-sum));
    }
    conv.erase(conv.begin(), conv.begin() + static_cast<long>(channels));
    std::vector<double> out;
    const float* z = in.data() + channels;
    for (std::int64_t h = 0; h < s.value_heads; ++h) {
      const std::vector<double> y = head(u, z + s.v_channels(), h);
      double squares = 0;
      for (const double v : y)
        squares += v * v;
      const double scale = 1 / std::sqrt(squares / static_cast<double>(s.value_dim) + 1e-6);
      for (std::size_t d = 0; d < y.size(); ++d) {
        const double gate = z[h * s.value_dim + static_cast<long>(d)];
        out.push_back(y[d] * scale * static_cast<double>(w.norm[d]) * gate / (1 + std::exp(-gate)));
      }
    }
    return out;
  }

  std::vector<double> head(const std::vector<double>& u, const float* gates, std::int64_t h) {
    const DeltaShape& s = w.shape;
    const std::int64_t key_head = h / (s.value_heads / s.key_heads);
    const auto unit = [&](std::int64_t begin) {
      std::vector<double> x(u.begin() + begin, u.begin() + begin + s.key_dim);
      double squares = 0;
      for (const double v : x)
        squares += v * v;
      for (double& v : x)
        v /= std::sqrt(squares + 1e-6 * static_cast<double>(s.key_dim));
      return x;
    };
    std::vector<double> q = unit(key_head * s.key_dim);
    const std::vector<double> k = unit(s.qk_channels() + key_head * s.key_dim);
    for (double& v : q)
      v /= std::sqrt(static_cast<double>(s.key_dim));
    const double beta = 1 / (1 + std::exp(-static_cast<double>(gates[h])));
    const auto i = static_cast<std::size_t>(h);
    const double a =
        static_cast<double>(gates[s.value_heads + h]) + static_cast<double>(w.dt_bias[i]);
    const double gate =
        std::exp(-std::exp(static_cast<double>(w.a_log[i])) * std::log1p(std::exp(a)));
    std::vector<double> y(static_cast<std::size_t>(s.value_dim));
    for (std::int64_t d = 0; d < s.value_dim; ++d) {
      double* line = state.data() + (h * s.value_dim + d) * s.key_dim;
      double m = 0;
      for (std::size_t j = 0; j < k.size(); ++j)
        m += (line[j] *= gate) * k[j];
      const double v = u[static_cast<std::size_t>(2 * s.qk_channels() + h * s.value_dim + d)];
      for (std::size_t j = 0; j < k.size(); ++j)
        line[j] += beta * (v - m) * k[j];
      for (std::size_t j = 0; j < k.size(); ++j)
        y[static_cast<std::size_t>(d)] += line[j] * q[j];
    }
    return y;
  }

  const DeltaWeights& w;
  std::vector<double> state, conv;
};

double relative_l2(const std::vector<double>& expected, const std::vector<float>& found) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(static_cast<double>(found[i]) - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

// Both classes against the recurrence in double precision. A row's output is a chain of a few
// hundred rounded operations on values of one magnitude: 256 u allows for it, u = 2^-24.
TEST(Delta, BothClassesFollowTheRecurrence) {
  for (const Mixers& mixers : {demo_mixers(), odd_mixers()}) {
    for (const SegmentClass cls : {SegmentClass::kStep, SegmentClass::kPrefill}) {
      const auto backend = reference_backend();
      const auto state = backend->make_state(mixers.shape());
      const std::vector<float> found =
          step(*backend, mixers, {.state = state.get(), .seed = 8, .cls = cls, .rows = 150});
      DoubleDelta exact(mixers.delta);
      std::vector<double> expected;
      for (std::int64_t p = 0; p < 150; ++p) {
        const std::vector<double> row =
            exact.row(input_row(8, p, delta_projected_width(mixers.delta.shape)));
        expected.insert(expected.end(), row.begin(), row.end());
      }
      EXPECT_LT(relative_l2(expected, found), 256 * 0x1p-24);
    }
  }
}

// The tiny example of spec 3.3: one head of two dimensions, two tokens. The verb convolves, applies
// SiLU and normalises, so the inputs are chosen to make those steps plain: the convolution passes
// the current row, SiLU is x from 40 on, and the output's norm is drowned by a huge epsilon.
TEST(Delta, TinyExampleOfTheSpecification) {
  DeltaWeights w;
  w.shape = {.key_heads = 1, .value_heads = 1, .key_dim = 2, .value_dim = 2, .conv_kernel = 2};
  for (int c = 0; c < 6; ++c)
    append(w.conv, {0.0f, 1.0f});
  w.a_log = {0.0f};
  w.dt_bias = {0.0f};
  w.norm = {1.0f, 1.0f};
  w.norm_eps = 1e16f;
  // q, k, v, z, b, a. Values are 100 times the example's; softplus(0) = ln 2 makes g one half.
  const std::vector<float> first = {100, 0, 100, 0, 200, 400, 100, 100, 0, 0};
  const std::vector<float> second = {100, 100, 60, 80, 100, 100, 100, 100, 100, 0};
  // Of unit q times 2^-1/2: y / (|q| sqrt 2), times 100 for v, 100 for z, 1e-8 for the norm.
  const double scale = 1e-4 / std::sqrt(2.0);
  const std::vector<double> expected = {1 * scale, 2 * scale, 1.48 * scale / std::sqrt(2.0),
                                        1.56 * scale / std::sqrt(2.0)};
  for (const SegmentClass cls : {SegmentClass::kStep, SegmentClass::kPrefill}) {
    const auto backend = reference_backend();
    const auto state = backend->make_state(
        {.delta_layers = {w.shape}, .attention_layers = {}, .target_attention_layers = 0});
    Batch batch;
    batch.rows = 2;
    batch.coordinates = {0, 0, 0, 1, 1, 1};
    batch.segments = {{.cls = cls,
                       .row_begin = 0,
                       .row_count = 2,
                       .position = 0,
                       .state = state.get(),
                       .speculative = false}};
    std::vector<float> in = first;
    append(in, second);
    const Tensor out = backend->scratch(2, 2);
    backend->delta(batch, 0, w, upload_new(*backend, in, 2), out);
    const std::vector<float> y = download_all(*backend, out);
    for (std::size_t i = 0; i < 4; ++i) {
      // Some twenty operations of half a unit each.
      EXPECT_NEAR(y[i], expected[i], 20 * 0x1p-24 * expected[i]);
    }
  }
}

}  // namespace
}  // namespace lockstep::ops
