// SPDX-License-Identifier: Apache-2.0
#include "lockstep/quant/quantize.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <rapidcheck.h>
#include <vector>

#include "lockstep/quant/codec.h"

namespace lockstep::quant {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<QuantizeOptions> all_options() {
  std::vector<QuantizeOptions> all;
  for (Flavour flavour : {Flavour::kMetal, Flavour::kCpu}) {
    for (MxScale rule : {MxScale::kUp, MxScale::kNearest}) {
      for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
        all.push_back({.flavour = flavour, .mx_scale = rule, .source_type = type});
      }
    }
  }
  return all;
}

std::vector<Format> quantized_formats(DType scale_type) {
  std::vector<Format> formats = {mxfp4(), mxfp8(), nvfp4()};
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (int group : {32, 64, 128})
      formats.push_back(affine(bits, group, scale_type));
  }
  return formats;
}

std::vector<float> dequantized(const QuantizedMatrix& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.cols));
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    dequantize_row(matrix.view(), r, values.data() + r * matrix.cols);
  }
  return values;
}

QuantizedMatrix must_quantize(const std::vector<float>& values, const Format& format,
                              const QuantizeOptions& options) {
  auto result =
      quantize_matrix(values.data(), 1, static_cast<std::int64_t>(values.size()), format, options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().to_string());
  return std::move(result).value();
}

std::vector<float> normal_values(std::size_t count, unsigned seed, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values)
    value = bf16_to_f32(f32_to_bf16(normal(random)));
  return values;
}

// Nearest neighbour over the whole code table, ties to the even code, in double.
std::uint8_t nearest_code(float value, int codes, float (*decode)(std::uint8_t)) {
  int best = 0;
  for (int code = 1; code < codes; ++code) {
    const double now =
        std::fabs(std::fabs(value) - double{decode(static_cast<std::uint8_t>(code))});
    const double was =
        std::fabs(std::fabs(value) - double{decode(static_cast<std::uint8_t>(best))});
    if (now < was || (now == was && code % 2 == 0)) best = code;
  }
  return static_cast<std::uint8_t>(best + (std::signbit(value) ? codes : 0));
}

TEST(Encode, EveryBf16IsNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(bits));
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(f32_to_e2m1(value), std::fabs(value) > 5.0f ? (std::signbit(value) ? 15 : 7)
                                                          : nearest_code(value, 8, e2m1_to_f32))
        << value;
    // 0x7f is no code of the encoder: the table ends at 448.
    ASSERT_EQ(f32_to_e4m3(value),
              std::fabs(value) >= 448.0f
                  ? (std::signbit(value) ? 0xfe : 0x7e)
                  : nearest_code(value, 127, e4m3_to_f32) + (std::signbit(value) ? 1 : 0))
        << value;
  }
}

TEST(Encode, CodesOfDecodedValuesAreThemselves) {
  for (int code = 0; code < 16; ++code) {
    const auto c = static_cast<std::uint8_t>(code);
    EXPECT_EQ(f32_to_e2m1(e2m1_to_f32(c)), c);
  }
  for (int code = 0; code < 256; ++code) {
    const auto c = static_cast<std::uint8_t>(code);
    if ((code & 0x7f) != 0x7f) {
      EXPECT_EQ(f32_to_e4m3(e4m3_to_f32(c)), c);
    }
  }
}

// Half a step where the codes reach, from the numbers the format stores: |scale| / 2 plus the
// rounding of scale and bias to bf16 (half of 2^-7 relative each).
TEST(Quantize, AffineErrorIsBelowHalfAStep) {
  const std::vector<float> values = normal_values(1024, 5, 0.05f);
  for (const QuantizeOptions& options : all_options()) {
    for (int bits : {2, 3, 4, 5, 6, 8}) {
      const Format format = affine(bits, 64);
      const QuantizedMatrix matrix = must_quantize(values, format, options);
      const std::vector<float> decoded = dequantized(matrix);
      const auto levels = static_cast<double>((1 << bits) - 1);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double scale = load_float(matrix.scales.data(), DType::kBF16, i / 64);
        const double bias = load_float(matrix.biases.data(), DType::kBF16, i / 64);
        const double stored = std::ldexp(levels * std::fabs(scale) + std::fabs(bias), -8);
        // Moving an end onto a multiple of the step may leave the other end half a step outside.
        ASSERT_LE(std::fabs(decoded[i] - values[i]), std::fabs(scale) * (0.5 + 0.5) + stored)
            << format.name() << " " << i;
      }
    }
  }
}

// With the rule "up" nothing saturates: every element is within half a step of its own binade.
TEST(Quantize, MxUpErrorIsHalfAStep) {
  const std::vector<float> values = normal_values(1024, 6, 0.05f);
  for (Flavour flavour : {Flavour::kMetal, Flavour::kCpu}) {
    for (const Format& format : {mxfp4(), mxfp8()}) {
      const QuantizedMatrix matrix = must_quantize(values, format, {.flavour = flavour});
      const std::vector<float> decoded = dequantized(matrix);
      const double half_step = format.kind == Kind::kMxfp4 ? 0x1p-2 : 0x1p-4;
      const double smallest_step = format.kind == Kind::kMxfp4 ? 0x1p-2 : 0x1p-10;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double scale = e8m0_to_f32(std::to_integer<std::uint8_t>(matrix.scales[i / 32]));
        const double binade = std::exp2(std::floor(std::log2(std::fabs(values[i]))));
        ASSERT_LE(std::fabs(decoded[i] - values[i]),
                  std::max(half_step * binade, smallest_step * scale))
            << format.name() << " " << i;
      }
    }
  }
}

TEST(Quantize, ZerosAndSignedZerosDecodeToZero) {
  for (const QuantizeOptions& options : all_options()) {
    for (const Format& format : quantized_formats(options.source_type)) {
      for (float zero : {0.0f, -0.0f}) {
        const QuantizedMatrix matrix =
            must_quantize(std::vector<float>(128, zero), format, options);
        for (float value : dequantized(matrix))
          ASSERT_EQ(value, 0.0f) << format.name();
      }
    }
  }
}

TEST(Quantize, ZeroGroupScaleBytes) {
  const std::vector<float> zeros(32);
  for (const QuantizeOptions& options : all_options()) {
    const int expected = options.flavour == Flavour::kMetal ? 0 : 127;
    for (const Format& format : {mxfp4(), mxfp8()}) {
      EXPECT_EQ(std::to_integer<int>(must_quantize(zeros, format, options).scales[0]), expected);
    }
    EXPECT_EQ(must_quantize(zeros, nvfp4(), options).scales[0], std::byte{0});
  }
}

TEST(Quantize, NegativeZeroCodeOnMetalOnly) {
  std::vector<float> values(32, 1.0f);
  values[0] = -0.01f;
  EXPECT_EQ(must_quantize(values, mxfp4(), {.flavour = Flavour::kMetal}).codes[0] & std::byte{15},
            std::byte{8});
  EXPECT_EQ(must_quantize(values, mxfp4(), {.flavour = Flavour::kCpu}).codes[0] & std::byte{15},
            std::byte{0});
}

// Zero and the end of larger magnitude are codes, so a sparse group keeps its zeros.
TEST(Quantize, AffineKeepsZeroAndTheEdge) {
  std::vector<float> values(64);
  values[5] = -3.0f;
  values[9] = 1.0f;
  const std::vector<float> decoded = dequantized(must_quantize(values, affine(4, 64), {}));
  EXPECT_EQ(decoded[0], decoded[1]);
  EXPECT_LE(std::fabs(decoded[0]), std::ldexp(3.0f, -8));
  EXPECT_EQ(decoded[5], -3.0f);
}

TEST(Quantize, ConstantGroupsAreExactInBf16) {
  for (const QuantizeOptions& options : all_options()) {
    // The last is so large that its edge code overflows: scale 0, bias carries the value.
    for (float constant : {0.7109375f, -0.7109375f, 0x1.4p-10f, 0x1p100f, 0x1.8p110f}) {
      const float value = bf16_to_f32(f32_to_bf16(constant));
      for (int group : {32, 64, 128}) {
        const std::vector<float> decoded =
            dequantized(must_quantize(std::vector<float>(128, value), affine(4, group), options));
        for (float x : decoded)
          ASSERT_EQ(x, value) << constant;
      }
    }
  }
}

TEST(Quantize, SubnormalGroupsBecomeZero) {
  std::vector<float> values(32, 1e-40f);
  values[3] = -std::numeric_limits<float>::denorm_min();
  for (const QuantizeOptions& options : all_options()) {
    for (const Format& format : {mxfp4(), mxfp8(), nvfp4()}) {
      const QuantizedMatrix matrix = must_quantize(values, format, options);
      for (std::byte byte : matrix.scales)
        EXPECT_EQ(byte, std::byte{0});
      for (std::byte byte : matrix.codes)
        EXPECT_EQ(byte, std::byte{0});
    }
  }
}

// The smallest power of two not below max / 6 and max / 448, at the edges of its range.
TEST(Quantize, MxUpScaleIsTheSmallestThatFits) {
  const float kMin = std::numeric_limits<float>::min();
  const float kMax = std::numeric_limits<float>::max();
  for (float largest : {kMin, 2 * kMin, 6.0f, std::nextafter(6.0f, 7.0f), 448.0f, 449.0f, 0.1f,
                        3.0f, 1e30f, kMax}) {
    for (Flavour flavour : {Flavour::kMetal, Flavour::kCpu}) {
      for (const Format& format : {mxfp4(), mxfp8()}) {
        std::vector<float> values(32, 0.0f);
        values[31] = largest;
        const QuantizedMatrix matrix =
            must_quantize(values, format, {.flavour = flavour, .source_type = DType::kF32});
        const int byte = std::to_integer<int>(matrix.scales[0]);
        const double needed = largest / (format.kind == Kind::kMxfp4 ? 6.0f : 448.0f);
        EXPECT_GE(std::ldexp(1.0, byte - 127), needed) << largest;
        if (byte > 0) {
          EXPECT_LT(std::ldexp(1.0, byte - 128), needed) << largest;
        }
      }
    }
  }
}

TEST(Quantize, NonFiniteValuesAreRefused) {
  for (float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<Format> formats = quantized_formats(DType::kBF16);
    formats.push_back(float_format(DType::kF32));
    for (const Format& format : formats) {
      std::vector<float> values(256, 0.5f);
      values[128 + 77] = bad;
      const auto result = quantize_matrix(values.data(), 2, 128, format, {});
      ASSERT_FALSE(result.ok()) << format.name();
      EXPECT_EQ(result.error().code, ErrorCode::kFormat);
      EXPECT_EQ(result.error().where, "row 1");
      EXPECT_NE(result.error().message.find("column 77 "), std::string::npos);
    }
  }
}

TEST(Quantize, ValuesBeyondScaleOrBiasAreRefused) {
  // high - low overflows float32.
  std::vector<float> values(32, 3e38f);
  values[0] = -3e38f;
  for (int bits : {2, 8}) {
    const auto result = quantize_matrix(values.data(), 1, 32, affine(bits, 32), {});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kLimit);
  }
  // Fits float32, not float16.
  const std::vector<float> large(32, 70000.0f);
  EXPECT_FALSE(quantize_matrix(large.data(), 1, 32, affine(4, 32, DType::kF16), {}).ok());
  EXPECT_TRUE(quantize_matrix(large.data(), 1, 32, affine(4, 32, DType::kF32), {}).ok());
  EXPECT_FALSE(quantize_matrix(large.data(), 1, 32, float_format(DType::kF16), {}).ok());
  EXPECT_TRUE(quantize_matrix(large.data(), 1, 32, float_format(DType::kBF16), {}).ok());
}

TEST(Quantize, WidthMustBeAMultipleOfTheGroup) {
  const std::vector<float> values(64);
  const auto result = quantize_matrix(values.data(), 1, 64, affine(4, 128), {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kInconsistent);
  EXPECT_NE(result.error().message.find("128"), std::string::npos);
  EXPECT_FALSE(quantize_matrix(values.data(), 2, 24, nvfp4(), {}).ok());
}

TEST(Quantize, EmptyMatrices) {
  for (const Format& format : quantized_formats(DType::kBF16)) {
    const auto none = quantize_matrix(nullptr, 0, 128, format, {});
    ASSERT_TRUE(none.ok());
    EXPECT_TRUE(none->codes.empty());
    EXPECT_TRUE(quantize_matrix(nullptr, 3, 0, format, {}).ok());
  }
}

TEST(Quantize, FloatFormatsRoundToNearest) {
  const std::vector<float> values = {1.0f, 1.00390625f, -0.1f, 65504.0f, 0x1p-27f};
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::vector<float> decoded = dequantized(must_quantize(values, float_format(type), {}));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float expected = type == DType::kF32    ? values[i]
                             : type == DType::kBF16 ? bf16_to_f32(f32_to_bf16(values[i]))
                                                    : f16_to_f32(f32_to_f16(values[i]));
      EXPECT_EQ(decoded[i], expected);
    }
  }
}

TEST(Quantize, RowsAreIndependent) {
  const std::vector<float> values = normal_values(4 * 128, 8, 1.0f);
  for (const Format& format : quantized_formats(DType::kBF16)) {
    const auto whole = quantize_matrix(values.data(), 4, 128, format, {});
    ASSERT_TRUE(whole.ok());
    const std::vector<float> decoded = dequantized(*whole);
    for (std::size_t r = 0; r < 4; ++r) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(r * 128);
      const std::vector<float> row(begin, begin + 128);
      const auto from = decoded.begin() + static_cast<std::ptrdiff_t>(r * 128);
      ASSERT_EQ(dequantized(must_quantize(row, format, {})), std::vector<float>(from, from + 128));
    }
  }
}

// A decoded mx group whose largest code is in the upper part of the table asks for the same power
// of two again, and each decoded element is its own nearest code.
TEST(Quantize, MxUpIsIdempotentOnItsOwnOutput) {
  EXPECT_TRUE(rc::check("quantize(dequantize(q)) == q", [] {
    const bool fp8 = *rc::gen::arbitrary<bool>();
    const bool cpu = *rc::gen::arbitrary<bool>();
    const Format format = fp8 ? mxfp8() : mxfp4();
    const auto seed = *rc::gen::arbitrary<unsigned>();
    const float magnitude = std::ldexp(1.0f, *rc::gen::inRange(-60, 60));
    const QuantizeOptions options = {.flavour = cpu ? Flavour::kCpu : Flavour::kMetal};
    const auto first = must_quantize(normal_values(256, seed, magnitude), format, options);
    const auto second = must_quantize(dequantized(first), format, options);
    for (std::size_t g = 0; g < first.scales.size(); ++g) {
      // Rounding down the largest element to 3 (1.5 of 6) or 224 would halve the next scale.
      float largest = 0.0f;
      const std::vector<float> decoded = dequantized(first);
      for (std::size_t i = 0; i < 32; ++i) {
        largest = std::max(largest, std::fabs(decoded[g * 32 + i]));
      }
      const float scale = e8m0_to_f32(std::to_integer<std::uint8_t>(first.scales[g]));
      if (largest / scale <= (fp8 ? 224.0f : 3.0f)) continue;
      RC_ASSERT(second.scales[g] == first.scales[g]);
      const std::size_t bytes = fp8 ? 32 : 16;
      for (std::size_t i = g * bytes; i < (g + 1) * bytes; ++i) {
        RC_ASSERT(second.codes[i] == first.codes[i]);
      }
    }
  }));
}

}  // namespace
}  // namespace lockstep::quant
