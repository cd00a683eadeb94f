// SPDX-License-Identifier: Apache-2.0
// route, experts_in, experts_out.
#include <cmath>
#include <set>

#include "lockstep/ops/test_data.h"
#include "lockstep/quant/codec.h"

namespace lockstep::ops {
namespace {

struct BlockShape {
  std::int64_t hidden, experts, expert_hidden, shared_hidden;
  int top_k;
};

struct MoeBlock {
  MoeBlock(const BlockShape& s, const quant::Format& format, std::uint32_t seed)
      : shape(s),
        noise(seed),
        router(quant::float_format(DType::kF32), s.experts, s.hidden, noise),
        shared_router(quant::float_format(DType::kBF16), 1, s.hidden, noise),
        shared_gate(format, s.shared_hidden, s.hidden, noise),
        shared_up(format, s.shared_hidden, s.hidden, noise),
        shared_down(format, s.hidden, s.shared_hidden, noise) {
    for (std::int64_t e = 0; e < s.experts; ++e) {
      gate.emplace_back(format, s.expert_hidden, s.hidden, noise);
      up.emplace_back(format, s.expert_hidden, s.hidden, noise);
      down.emplace_back(format, s.hidden, s.expert_hidden, noise);
    }
    gamma = noise.floats(s.hidden, 0.5f, 1.5f);
  }

  static std::vector<quant::MatrixView> views(const std::vector<StoredMatrix>& matrices) {
    std::vector<quant::MatrixView> all;
    for (const StoredMatrix& m : matrices)
      all.push_back(m.view());
    return all;
  }

  struct Output {
    std::vector<std::int32_t> experts;
    std::vector<float> weights, values;  // values: x after the block
    std::int64_t expert_union;
  };

  Output run(Backend& backend, const std::vector<float>& x, std::int64_t rows) const {
    backend.reset_scratch();
    const auto route = backend.prepare(std::array{router.view(), shared_router.view()});
    const auto g = backend.prepare_bank(views(gate)), u = backend.prepare_bank(views(up));
    const auto d = backend.prepare_bank(views(down));
    const auto sg = backend.prepare(std::array{shared_gate.view()});
    const auto su = backend.prepare(std::array{shared_up.view()});
    const auto sd = backend.prepare(std::array{shared_down.view()});
    const Tensor t = upload_new(backend, x, rows);
    const RouterOutput routed = backend.route(t, gamma, 1e-6f, *route, shape.top_k);
    const Tensor activations = backend.experts_in(routed, *g, *u, *sg, *su);
    EXPECT_EQ(activations.width, shape.top_k * shape.expert_hidden + shape.shared_hidden);
    backend.experts_out(routed, activations, *d, *sd, t);
    Output out;
    out.experts.assign(routed.experts, routed.experts + rows * shape.top_k);
    out.weights = download_all(backend, routed.weights);
    append(out.weights, download_all(backend, routed.shared_gate));
    out.values = download_all(backend, t);
    out.expert_union = backend.expert_union();
    return out;
  }

  std::vector<float> all(Backend& backend, const std::vector<float>& x, std::int64_t rows) const {
    const Output out = run(backend, x, rows);
    std::vector<float> values = out.values;
    append(values, out.weights);
    for (const std::int32_t e : out.experts)
      values.push_back(static_cast<float>(e));
    values.push_back(static_cast<float>(out.expert_union));
    return values;
  }

  BlockShape shape;
  Noise noise;
  StoredMatrix router, shared_router, shared_gate, shared_up, shared_down;
  std::vector<StoredMatrix> gate, up, down;
  std::vector<float> gamma;
};

constexpr BlockShape kDemo = {
    .hidden = 256, .experts = 24, .expert_hidden = 64, .shared_hidden = 64, .top_k = 4};
constexpr BlockShape kOdd = {
    .hidden = 75, .experts = 7, .expert_hidden = 29, .shared_hidden = 41, .top_k = 3};

TEST(Experts, EqualReferenceForEveryRowCount) {
  const MoeBlock demo(kDemo, quant::float_format(DType::kBF16), 30);
  const MoeBlock quantised(kDemo, quant::affine(4, 64), 31);
  const MoeBlock odd(kOdd, quant::float_format(DType::kF16), 32);
  for (const MoeBlock* block : {&demo, &quantised, &odd}) {
    Noise noise(33);
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64, 200}) {
      if (rows > 64 && block != &odd) continue;
      const std::vector<float> x = noise.floats(rows * block->shape.hidden);
      expect_bitwise([&](Backend& backend) { return block->all(backend, x, rows); });
    }
  }
}

TEST(Experts, RowAloneEqualsRowAmongOthers) {
  const MoeBlock block(kDemo, quant::float_format(DType::kBF16), 34);
  Noise noise(35);
  const std::vector<float> x = noise.floats(64 * 256);
  for (const std::string& isa : present_isas()) {
    const auto backend = cpu_backend(isa, 3);
    std::vector<float> alone;
    for (std::int64_t r = 0; r < 64; ++r) {
      append(alone,
             block.run(*backend, {x.begin() + r * 256, x.begin() + (r + 1) * 256}, 1).values);
    }
    for (const std::int64_t rows : {2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64}) {
      const auto found = block.run(*backend, {x.begin(), x.begin() + rows * 256}, rows).values;
      EXPECT_TRUE(same_bits(std::span(alone).first(found.size()), found)) << isa << ", " << rows;
    }
  }
}

// Rows that all choose the same experts leave the others without work.
TEST(Experts, RowsMayShareAllTheirExperts) {
  const MoeBlock block(kDemo, quant::float_format(DType::kBF16), 36);
  Noise noise(37);
  const std::vector<float> row = noise.floats(256);
  std::vector<float> x;
  for (int r = 0; r < 9; ++r)
    append(x, row);
  expect_bitwise([&](Backend& backend) { return block.all(backend, x, 9); });
  const MoeBlock::Output out = block.run(*cpu_backend("", 2), x, 9);
  EXPECT_EQ(out.expert_union, 4);
  for (std::size_t i = 0; i < out.experts.size(); ++i)
    EXPECT_EQ(out.experts[i], out.experts[i % 4]);
}

TEST(Experts, SelectionIsDescendingAndWeightsSumToOne) {
  const MoeBlock block(kDemo, quant::float_format(DType::kBF16), 38);
  Noise noise(39);
  const MoeBlock::Output out = block.run(*cpu_backend("", 1), noise.floats(50 * 256), 50);
  std::set<std::int32_t> used;
  for (std::size_t r = 0; r < 50; ++r) {
    float sum = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      if (i > 0) {
        EXPECT_GE(out.weights[4 * r + i - 1], out.weights[4 * r + i]);
      }
      sum += out.weights[4 * r + i];
      used.insert(out.experts[4 * r + i]);
    }
    EXPECT_NEAR(sum, 1.0f, 8 * 0x1p-24f);  // four quotients and three sums, half a unit each
    EXPECT_EQ(std::set(out.experts.begin() + 4 * static_cast<long>(r),
                       out.experts.begin() + 4 * static_cast<long>(r + 1))
                  .size(),
              4u);
  }
  EXPECT_EQ(out.expert_union, static_cast<std::int64_t>(used.size()));
}

// A router of zeros makes every probability equal.
TEST(Experts, TiesGoToTheLowestIndex) {
  const std::vector<std::byte> zeros(25 * 64 * 4);
  const quant::MatrixView view = {
      .format = quant::float_format(DType::kF32), .rows = 25, .cols = 64, .codes = zeros.data()};
  expect_bitwise([&](Backend& backend) {
    const auto router = backend.prepare(std::array{view});
    const Tensor x = upload_new(backend, std::vector<float>(64, 1.0f), 1);
    const RouterOutput out = backend.route(x, std::vector<float>(64, 1.0f), 1e-6f, *router, 5);
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(out.experts[i], i);
    std::vector<float> values = download_all(backend, out.weights);
    for (const float weight : values)
      EXPECT_EQ(weight, 0.2f);
    append(values, download_all(backend, out.shared_gate));
    EXPECT_EQ(values.back(), 0.5f);
    return values;
  });
}

// Broken activations must not lead to an index out of range.
TEST(Experts, NanInputsStillSelectValidExperts) {
  const MoeBlock block(kOdd, quant::float_format(DType::kF32), 40);
  const std::vector<float> x(75, std::nanf(""));
  for (const std::string& isa : present_isas()) {
    const MoeBlock::Output out = block.run(*cpu_backend(isa, 1), x, 1);
    EXPECT_EQ(out.experts, block.run(*reference_backend(), x, 1).experts);
    EXPECT_EQ(std::set(out.experts.begin(), out.experts.end()).size(), 3u);
  }
}

// The block in double precision, with the selection that was made.
TEST(Experts, FollowTheDefinition) {
  const MoeBlock block(kOdd, quant::float_format(DType::kF32), 41);
  Noise noise(42);
  const std::vector<float> x = noise.floats(75);
  const MoeBlock::Output out = block.run(*reference_backend(), x, 1);
  double squares = 0;
  for (const float v : x)
    squares += static_cast<double>(v) * static_cast<double>(v);
  std::vector<double> normed;
  for (std::size_t i = 0; i < x.size(); ++i) {
    normed.push_back(static_cast<double>(x[i]) / std::sqrt(squares / 75 + 1e-6) *
                     static_cast<double>(block.gamma[i]));
  }
  const auto product = [](const StoredMatrix& w, const std::vector<double>& in) {
    std::vector<float> line(in.size());
    std::vector<double> result;
    for (std::int64_t n = 0; n < w.view().rows; ++n) {
      quant::dequantize_row(w.view(), n, line.data());
      double sum = 0;
      for (std::size_t k = 0; k < in.size(); ++k)
        sum += in[k] * static_cast<double>(line[k]);
      result.push_back(sum);
    }
    return result;
  };
  std::vector<double> expected(x.begin(), x.end());
  const auto add = [&](const StoredMatrix& g, const StoredMatrix& u, const StoredMatrix& d,
                       double weight) {
    std::vector<double> gate = product(g, normed);
    const std::vector<double> up = product(u, normed);
    for (std::size_t i = 0; i < gate.size(); ++i)
      gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    const std::vector<double> y = product(d, gate);
    for (std::size_t i = 0; i < y.size(); ++i)
      expected[i] += weight * y[i];
  };
  const std::vector<double> logits = product(block.router, normed);
  double sum = 0;
  for (int i = 0; i < 3; ++i)
    sum += std::exp(logits[static_cast<std::size_t>(out.experts[static_cast<std::size_t>(i)])]);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto e = static_cast<std::size_t>(out.experts[i]);
    add(block.gate[e], block.up[e], block.down[e], std::exp(logits[e]) / sum);
  }
  const double gate = product(block.shared_router, normed)[0];
  add(block.shared_gate, block.shared_up, block.shared_down, 1 / (1 + std::exp(-gate)));
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(static_cast<double>(out.values[i]) - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  // Three products of sums of at most 75 terms, one after another: 3 * 75 u.
  EXPECT_LT(std::sqrt(error / norm), 225 * 0x1p-24);
}

}  // namespace
}  // namespace lockstep::ops
