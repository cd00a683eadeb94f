// SPDX-License-Identifier: Apache-2.0
#include "lockstep/ops/math.h"

#include <cmath>
#include <limits>

#include "lockstep/ops/test_data.h"

namespace lockstep::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Distance from the exact value in units of its last place, with subnormals counted in theirs.
double units(float found, double exact) {
  const double size = std::max(std::abs(exact), 0x1p-126);
  const double unit = std::ldexp(1.0, std::ilogb(size) - 23);
  return std::abs(static_cast<double>(found) - exact) / unit;
}

// Dense in the middle, and every power of two beyond.
std::vector<float> arguments(float low, float high) {
  std::vector<float> xs;
  Noise noise(50);
  for (int i = 0; i < 200'000; ++i)
    xs.push_back(noise.uniform(low, high));
  for (int i = 0; i < 20'000; ++i)
    xs.push_back(noise.uniform(-1.0f, 1.0f));
  for (int e = -149; e <= 127; ++e) {
    for (const float sign : {-1.0f, 1.0f})
      xs.push_back(sign * std::ldexp(1.0f, e));
  }
  return xs;
}

TEST(Math, ExpWithinTwoUnits) {
  for (const float x : arguments(-104.0f, 88.7f)) {
    const double exact = std::exp(static_cast<double>(x));
    if (exact > static_cast<double>(std::numeric_limits<float>::max())) {
      EXPECT_EQ(exp_f32(x), kInfinity);
    } else {
      ASSERT_LE(units(exp_f32(x), exact), 2.0) << x;
    }
  }
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-kInfinity), 0.0f);
  EXPECT_EQ(exp_f32(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exp_f32(std::nanf(""))));
}

TEST(Math, SigmoidWithinFourUnits) {
  for (const float x : arguments(-100.0f, 100.0f)) {
    ASSERT_LE(units(sigmoid(x), 1 / (1 + std::exp(-static_cast<double>(x)))), 4.0) << x;
  }
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_EQ(sigmoid(kInfinity), 1.0f);
  EXPECT_EQ(sigmoid(-kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(sigmoid(std::nanf(""))));
}

TEST(Math, SoftplusWithinFourUnits) {
  for (const float x : arguments(-100.0f, 100.0f)) {
    const double d = static_cast<double>(x);
    const double exact = std::max(d, 0.0) + std::log1p(std::exp(-std::abs(d)));
    ASSERT_LE(units(softplus(x), exact), 4.0) << x;
  }
  EXPECT_EQ(softplus(kInfinity), kInfinity);
  EXPECT_EQ(softplus(-kInfinity), 0.0f);
}

TEST(Math, SiluHasTheSignOfItsArgumentAndItsLimits) {
  for (const float x : arguments(-87.0f, 100.0f)) {
    if (x < -87.0f) continue;  // the sigmoid is subnormal there
    const double d = static_cast<double>(x);
    ASSERT_LE(units(silu(x), d / (1 + std::exp(-d))), 5.0) << x;
  }
  EXPECT_EQ(silu(0.0f), 0.0f);
  EXPECT_EQ(silu(100.0f), 100.0f);
}

// The vector bodies, through a verb: the activations of an expert of one unit whose matrices are
// one, silu(x) * x.
TEST(Math, VectorSiluGivesTheSameBits) {
  const std::vector<float> xs = arguments(-100.0f, 100.0f);
  for (const std::string& isa : present_isas()) {
    const auto backend = cpu_backend(isa, 1);
    const float one = 1.0f;
    const quant::MatrixView unit = {.format = quant::float_format(DType::kF32),
                                    .rows = 1,
                                    .cols = 1,
                                    .codes = reinterpret_cast<const std::byte*>(&one)};
    const auto matrix = backend->prepare(std::array{unit});
    const auto bank = backend->prepare_bank(std::array{unit});
    const auto rows = static_cast<std::int64_t>(xs.size());
    RouterOutput routed = {.normed = upload_new(*backend, xs, rows),
                           .experts = backend->scratch_ids(rows),
                           .weights = backend->scratch(rows, 1),
                           .shared_gate = backend->scratch(rows, 1)};
    std::fill_n(routed.experts, rows, 0);
    const std::vector<float> found =
        download_all(*backend, backend->experts_in(routed, *bank, *bank, *matrix, *matrix));
    std::vector<float> expected;
    for (const float x : xs)
      append(expected, {silu(x) * x, silu(x) * x});
    EXPECT_TRUE(same_bits(expected, found)) << isa;
  }
}

}  // namespace
}  // namespace lockstep::ops
