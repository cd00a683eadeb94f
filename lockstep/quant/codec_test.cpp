// SPDX-License-Identifier: Apache-2.0
#include "lockstep/quant/codec.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <rapidcheck.h>
#include <vector>

namespace lockstep::quant {
namespace {

TEST(Codes, RoundTripAtEveryWidthAndLength) {
  EXPECT_TRUE(rc::check("unpack(pack(codes)) == codes", [] {
    const int bits = *rc::gen::inRange(2, 9);
    const auto codes = *rc::gen::container<std::vector<std::uint8_t>>(rc::gen::map(
        rc::gen::arbitrary<std::uint8_t>(),
        [bits](std::uint8_t b) { return static_cast<std::uint8_t>(b & ((1 << bits) - 1)); }));
    const auto count = static_cast<std::int64_t>(codes.size());
    // Exact sizes, so that a sanitizer sees any access beyond them.
    std::vector<std::byte> packed((codes.size() * static_cast<std::size_t>(bits) + 7) / 8);
    std::vector<std::uint8_t> unpacked(codes.size());
    pack_codes(codes.data(), count, bits, packed.data());
    unpack_codes(packed.data(), count, bits, unpacked.data());
    RC_ASSERT(unpacked == codes);
    // The definition: bit b of code j is bit j * bits + b of the stream.
    for (std::size_t j = 0; j < codes.size(); ++j) {
      for (std::size_t b = 0; b < static_cast<std::size_t>(bits); ++b) {
        const std::size_t position = j * static_cast<std::size_t>(bits) + b;
        const int byte = std::to_integer<int>(packed[position / 8]);
        RC_ASSERT(((byte >> (position % 8)) & 1) == ((codes[j] >> b) & 1));
      }
    }
  }));
}

TEST(Codes, UnusedBitsOfTheLastByteAreZero) {
  const std::array<std::uint8_t, 3> codes = {7, 7, 7};
  std::array<std::byte, 2> packed = {std::byte{0xff}, std::byte{0xff}};
  pack_codes(codes.data(), 3, 3, packed.data());
  EXPECT_EQ(packed[0], std::byte{0xff});
  EXPECT_EQ(packed[1], std::byte{0x01});
}

TEST(E2m1, AllCodesByFormula) {
  for (int code = 0; code < 16; ++code) {
    const int exponent = (code >> 1) & 3;
    const int mantissa = code & 1;
    const double magnitude =
        exponent == 0 ? 0.5 * mantissa : std::ldexp(1.0 + 0.5 * mantissa, exponent - 1);
    const float value = e2m1_to_f32(static_cast<std::uint8_t>(code));
    EXPECT_EQ(std::fabs(value), magnitude) << code;
    EXPECT_EQ(std::signbit(value), code >= 8) << code;
  }
}

TEST(E4m3, AllCodesByFormula) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
    const float value = e4m3_to_f32(static_cast<std::uint8_t>(code));
    EXPECT_EQ(std::fabs(value), magnitude) << code;
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
  }
  EXPECT_EQ(e4m3_to_f32(0x7e), 448.0f);
}

TEST(E8m0, AllBytesByFormula) {
  for (int byte = 0; byte < 255; ++byte) {
    EXPECT_EQ(e8m0_to_f32(static_cast<std::uint8_t>(byte)), std::ldexp(1.0, byte - 127)) << byte;
  }
  EXPECT_EQ(e8m0_to_f32(255), std::numeric_limits<float>::infinity());
}

// A matrix of random bytes; floats miss the bit that infinities and NaN need.
struct RandomMatrix {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  std::vector<std::byte> biases;
  MatrixView view;

  RandomMatrix(const Format& format, std::int64_t rows, std::int64_t cols, unsigned seed) {
    std::mt19937 random(seed);
    const auto count = static_cast<std::size_t>(rows);
    const auto fill = [&random](std::vector<std::byte>& bytes, std::size_t size, unsigned mask) {
      bytes.resize(size);
      for (std::byte& byte : bytes)
        byte = std::byte(random() & mask);
    };
    fill(codes, count * row_bytes(format, cols), format.quantized() ? 0xff : 0xbf);
    fill(scales, count * scale_row_bytes(format, cols), 0xbf);
    fill(biases, format.has_biases() ? scales.size() : 0, 0xbf);
    view = {.format = format,
            .rows = rows,
            .cols = cols,
            .codes = codes.data(),
            .scales = scales.data(),
            .biases = biases.data()};
  }
};

std::vector<Format> sample_formats() {
  std::vector<Format> formats = {mxfp4(), mxfp8(), nvfp4()};
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    formats.push_back(float_format(type));
    for (int bits : {2, 3, 4, 5, 6, 8}) {
      for (int group : {32, 64, 128})
        formats.push_back(affine(bits, group, type));
    }
  }
  return formats;
}

double code_value(const Format& format, std::uint8_t code) {
  switch (format.kind) {
    case Kind::kMxfp8:
      return e4m3_to_f32(code);
    case Kind::kMxfp4:
    case Kind::kNvfp4:
      return e2m1_to_f32(code);
    default:
      return code;
  }
}

// a + b rounded once to float: the double sum is moved to an odd last bit when it is inexact, which
// keeps the second rounding from seeing a tie that is none.
float sum_to_float(double a, double b) {
  double sum = a + b;
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);
  if (error != 0.0 && (std::bit_cast<std::uint64_t>(sum) & 1u) == 0) {
    sum = std::nextafter(sum, error > 0.0 ? HUGE_VAL : -HUGE_VAL);
  }
  return static_cast<float>(sum);
}

// The element from its definition in spec 6.1 to 6.4, one bit at a time. A double holds
// scale * code exactly.
float expected_element(const RandomMatrix& m, std::int64_t row, std::int64_t col) {
  const Format& format = m.view.format;
  const auto r = static_cast<std::size_t>(row);
  const auto c = static_cast<std::size_t>(col);
  const std::byte* codes = m.codes.data() + r * row_bytes(format, m.view.cols);
  if (!format.quantized()) return load_float(codes, format.float_type, c);
  std::uint8_t code = 0;
  for (std::size_t b = 0; b < static_cast<std::size_t>(format.bits); ++b) {
    const std::size_t position = c * static_cast<std::size_t>(format.bits) + b;
    const int bit = (std::to_integer<int>(codes[position / 8]) >> (position % 8)) & 1;
    code = static_cast<std::uint8_t>(code | bit << b);
  }
  const std::size_t group = c / static_cast<std::size_t>(format.group);
  const std::size_t offset = r * scale_row_bytes(format, m.view.cols);
  if (format.kind == Kind::kAffine) {
    const float scale = load_float(m.scales.data() + offset, format.float_type, group);
    const float bias = load_float(m.biases.data() + offset, format.float_type, group);
    return sum_to_float(static_cast<double>(scale) * code, bias);
  }
  const auto byte = std::to_integer<std::uint8_t>(m.scales[offset + group]);
  const double scale =
      format.kind == Kind::kNvfp4 ? e4m3_to_f32(byte) : std::ldexp(1.0, byte - 127);
  return static_cast<float>(scale * code_value(format, code));
}

TEST(Dequantize, EveryFormatMatchesItsDefinition) {
  for (const Format& format : sample_formats()) {
    const RandomMatrix m(format, 3, 256, 7);
    for (std::int64_t row = 0; row < 3; ++row) {
      std::vector<float> out(256);
      dequantize_row(m.view, row, out.data());
      for (std::int64_t col = 0; col < 256; ++col) {
        const float expected = expected_element(m, row, col);
        ASSERT_EQ(out[static_cast<std::size_t>(col)], expected)
            << format.name() << " row " << row << " column " << col;
      }
    }
  }
}

TEST(Dequantize, RangesAreSlicesOfTheRow) {
  for (const Format& format : sample_formats()) {
    const RandomMatrix m(format, 2, 256, 11);
    std::vector<float> row(256);
    dequantize_row(m.view, 1, row.data());
    for (const auto& [begin, end] : {std::pair{0, 0},
                                     {256, 256},
                                     {0, 1},
                                     {255, 256},
                                     {31, 33},
                                     {3, 130},
                                     {64, 128},
                                     {17, 255}}) {
      std::vector<float> part(static_cast<std::size_t>(end - begin));
      dequantize_range(m.view, 1, begin, end, part.data());
      ASSERT_EQ(part, std::vector<float>(row.begin() + begin, row.begin() + end)) << format.name();
    }
  }
}

TEST(Dequantize, RowsAtOddAddresses) {
  const RandomMatrix m(affine(4, 64, DType::kF32), 1, 64, 3);
  std::vector<std::byte> shifted(1 + m.scales.size());
  std::memcpy(shifted.data() + 1, m.scales.data(), m.scales.size());
  MatrixView view = m.view;
  view.scales = shifted.data() + 1;
  std::vector<float> aligned(64);
  std::vector<float> odd(64);
  dequantize_row(m.view, 0, aligned.data());
  dequantize_row(view, 0, odd.data());
  EXPECT_EQ(aligned, odd);
}

TEST(Dequantize, RefusedBytesDecodeWithoutHarm) {
  std::vector<std::byte> codes(row_bytes(mxfp4(), 32), std::byte{0x21});
  const std::byte scale{255};
  const MatrixView view = {
      .format = mxfp4(), .rows = 1, .cols = 32, .codes = codes.data(), .scales = &scale};
  std::vector<float> out(32);
  dequantize_row(view, 0, out.data());
  EXPECT_EQ(out[0], std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace lockstep::quant
