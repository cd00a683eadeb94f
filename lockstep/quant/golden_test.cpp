// SPDX-License-Identifier: Apache-2.0
// The golden vectors of spec 6.5, and a larger file written by MLX itself (its first line names the
// versions, tools/oracle/quant_golden.py the command).
#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/quant/codec.h"
#include "lockstep/quant/quantize.h"

namespace lockstep::quant {
namespace {

std::string hex(const std::vector<std::byte>& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15u];
  }
  return text.empty() ? "-" : text;
}

// Little-endian words in hexadecimal, as the specification prints them.
std::string words(const QuantizedMatrix& matrix) {
  std::string text;
  for (std::size_t i = 0; i < matrix.codes.size(); i += 4) {
    std::vector<std::byte> word(matrix.codes.begin() + static_cast<std::ptrdiff_t>(i),
                                matrix.codes.begin() + static_cast<std::ptrdiff_t>(i + 4));
    text += (i == 0 ? "" : " ") + hex({word.rbegin(), word.rend()});
  }
  return text;
}

std::vector<float> spec_row() {
  std::vector<float> row;
  for (int i = 0; i < 64; ++i)
    row.push_back(static_cast<float>((37 * i + 11) % 64 - 29) / 64.0f);
  return row;
}

// sign * (|w| + 1/8)
std::vector<float> one_sided_row(float sign) {
  std::vector<float> row = spec_row();
  for (float& w : row)
    w = sign * (std::fabs(w) + 0.125f);
  return row;
}

QuantizedMatrix quantized(const std::vector<float>& row, const Format& format,
                          const QuantizeOptions& options) {
  auto result =
      quantize_matrix(row.data(), 1, static_cast<std::int64_t>(row.size()), format, options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().to_string());
  return std::move(result).value();
}

constexpr QuantizeOptions kMetal = {.flavour = Flavour::kMetal};
constexpr QuantizeOptions kCpu = {.flavour = Flavour::kCpu};
constexpr QuantizeOptions kMetalNearest = {.flavour = Flavour::kMetal,
                                           .mx_scale = MxScale::kNearest};
constexpr QuantizeOptions kCpuNearest = {.flavour = Flavour::kCpu, .mx_scale = MxScale::kNearest};
constexpr QuantizeOptions kCpuNearestF32 = {
    .flavour = Flavour::kCpu, .mx_scale = MxScale::kNearest, .source_type = DType::kF32};

struct AffineVector {
  int bits;
  float scale;
  const char* words;
};

void expect_affine(const QuantizedMatrix& matrix, float scale, float bias, const char* expected) {
  const auto near_bf16 = [](float x) { return bf16_to_f32(f32_to_bf16(x)); };
  EXPECT_EQ(load_float(matrix.scales.data(), DType::kBF16, 0), near_bf16(scale));
  EXPECT_EQ(load_float(matrix.biases.data(), DType::kBF16, 0), near_bf16(bias));
  EXPECT_EQ(words(matrix), expected);
}

TEST(SpecVectors, AffineBothFlavours) {
  const AffineVector vectors[] = {
      {2, -0.265625f, "7789de27 e2778dee 9de3789d 78de2778"},
      {3, -0.1328125f, "29cfc356 acfc3576 f0559f86 0d598872 e5e0ab3f 7e1ab310"},
      {4, -0.06640625f, "c5e81a4c 2b4d7093 81a4c6f8 d7193c5e 4d6092b5 a3c6e82a 093b5e71 6f82b4d7"},
      {6, -0.015625f,
       "e016a3f4 29ccc56e 26e4f874 d0d5afe4 25fc846a e5e0e837 c094abd4 21ec4766 a4ecd8f6 "
       "f057a7c4 2ddc0662 67e8c8b5"},
      {8, -0.00384521484f,
       "14aa3dd3 c759ef82 76089e31 25bb4de3 d76aff92 8618af41 35cb5df4 e77a0ca2 9629bf51 "
       "45db6e00 f88a1cb3 a639cf61 55eb7e10 049a2dc3 b749df72 65fc8e20"},
  };
  for (const AffineVector& v : vectors) {
    for (const QuantizeOptions& options : {kMetal, kCpu}) {
      SCOPED_TRACE(v.bits);
      expect_affine(quantized(spec_row(), affine(v.bits, 64), options), v.scale, 0.53125f, v.words);
    }
  }
}

TEST(SpecVectors, Affine5DiffersByTies) {
  expect_affine(quantized(spec_row(), affine(5, 64), kCpu), -0.03125f, 0.53125f,
                "fd01551a c70686c2 37f225d5 9e80ec8d e3c54365 dc09170a cf449646 7602a1f4 8e04cd85 "
                "67e44b27");
  expect_affine(quantized(spec_row(), affine(5, 64), kMetal), -0.03125f, 0.53125f,
                "fd01d51a c78686ca b7f22dd5 9e88ec8d ebc543e5 dc09970a cfc4964e f602a9f4 8e0ccd85 "
                "6fe44ba7");
}

TEST(SpecVectors, Affine4OneSided) {
  const char* kNarrow = "9a4e2c77 4a95d1d5 f3b77c2e 5e1d68a4 86c0e5a9 c68b3f3b 0e59a5e2 b3f4a86d";
  expect_affine(quantized(one_sided_row(-1.0f), affine(4, 64), kCpu), 0.0344238281f, -0.65625f,
                kNarrow);
  expect_affine(quantized(one_sided_row(-1.0f), affine(4, 64), kMetal), 0.0437011719f, -0.65625f,
                "783b2956 3874a1a4 c296592b 4b1a5683 65a0b487 a5693c39 0b4784b1 92c3865a");
  for (const QuantizeOptions& options : {kMetal, kCpu}) {
    expect_affine(quantized(one_sided_row(1.0f), affine(4, 64), options), -0.0344238281f, 0.65625f,
                  kNarrow);
  }
}

TEST(SpecVectors, Affine4Zeros) {
  for (const QuantizeOptions& options : {kMetal, kCpu}) {
    expect_affine(quantized(std::vector<float>(64), affine(4, 64), options), -0x1.aep-24f, 0.0f,
                  "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000");
  }
}

struct FloatCodedVector {
  const char* name;
  Format format;
  QuantizeOptions options;
  const char* scales;
  const char* words;
};

TEST(SpecVectors, FloatCoded) {
  const char* kMxfp8Nearest =
      "7ef07af9 f774fc60 6a7eea7b 7cf477fb fa70fee0 587ef179 7af873fd fc687eec e47cf576 78fa6e7e "
      "fe007ef2 ee7af872 75fc647e 7ee87cf6 f378fa6c 71fed87d";
  const FloatCodedVector vectors[] = {
      {"mxfp4 up cpu", mxfp4(), kCpu, "7c7c",
       "c3d06a4c 5b4d1695 05a4c2e0 d1695c3d 4c2695b3 a4c2d05a 695b3d16 2d05b4d1"},
      {"mxfp4 up metal", mxfp4(), kMetal, "7c7c",
       "c3d06a4c 5b4d1695 06a4c2e8 d16a5c3d 4c2695b4 a4c2d05a 695c3d16 2e85b4d2"},
      {"mxfp8 up cpu", mxfp8(), kCpu, "7676",
       "76e872f1 ef6cf458 6278e273 74ec6ff3 f268f6d8 5076e971 72f06bf5 f46078e4 dc74ed6e 70f26678 "
       "f60076ea e672f06a 6df45c77 78e074ee eb70f264 69f6d075"},
      {"mxfp4 nearest metal", mxfp4(), kMetalNearest, "7b7c",
       "e5f17c6e 7d6f27a7 07c6e4f9 f27b7e5f 4c2695b4 a4c2d05a 695c3d16 2e85b4d2"},
      {"mxfp4 nearest cpu f32", mxfp4(), kCpuNearestF32, "7b7c",
       "e5f17c6e 7d6f27a7 07c6e4f9 f27b7e5f 4c2695b3 a4c2d05a 695b3d16 2d05b4d1"},
      {"mxfp4 nearest cpu bf16", mxfp4(), kCpuNearest, "7b7b",
       "e5f17c6e 7d6f27a7 07c6e4f9 f27b7e5f 6e3797d5 b6e4f07c 7a7d5f17 4f07d6f3"},
      {"mxfp8 nearest metal", mxfp8(), kMetalNearest, "7575", kMxfp8Nearest},
      {"mxfp8 nearest cpu", mxfp8(), kCpuNearestF32, "7575", kMxfp8Nearest},
      {"nvfp4 metal", nvfp4(), kMetal, "1b1a1b1b",
       "d4e17b5d 6c5e27a6 07c6e3f9 e27a6d4f 5e3796c5 b6d4e06c 796d4e17 3f86c5e2"},
      {"nvfp4 cpu", nvfp4(), kCpu, "1b1a1b1b",
       "d4e17b5d 6c5e27a6 07c6e3f9 e27a6d4f 5e3796c5 b6d4e06c 796d4e17 3f06c5e2"},
  };
  for (const FloatCodedVector& v : vectors) {
    const QuantizedMatrix matrix = quantized(spec_row(), v.format, v.options);
    EXPECT_EQ(hex(matrix.scales), v.scales) << v.name;
    EXPECT_EQ(words(matrix), v.words) << v.name;
  }
}

TEST(SpecVectors, FirstDequantisedValues) {
  const auto first = [](const Format& format, const QuantizeOptions& options) {
    const QuantizedMatrix matrix = quantized(spec_row(), format, options);
    std::vector<float> values(8);
    dequantize_range(matrix.view(), 0, 0, 8, values.data());
    for (float& value : values)
      value = bf16_to_f32(f32_to_bf16(value));
    return values;
  };
  const std::vector<float> affine4 = {-0.265625f, 0.265625f,   -0.1328125f, 0.46484375f,
                                      0.0f,       -0.3984375f, 0.19921875f, -0.265625f};
  const std::vector<float> affine6 = {-0.28125f, 0.296875f,  -0.125f, 0.453125f,
                                      0.03125f,  -0.390625f, 0.1875f, -0.234375f};
  const std::vector<float> fp8 = {-0.28125f, 0.3125f, -0.125f, 0.4375f,
                                  0.03125f,  -0.375f, 0.1875f, -0.234375f};
  const std::vector<float> fp4 = {-0.25f,   0.25f,   -0.125f, 0.375f,
                                  0.03125f, -0.375f, 0.1875f, -0.25f};
  EXPECT_EQ(first(affine(4, 64), kMetal), affine4);
  EXPECT_EQ(first(affine(6, 64), kMetal), affine6);
  EXPECT_EQ(first(mxfp8(), kMetalNearest), fp8);
  EXPECT_EQ(first(mxfp4(), kMetalNearest), fp4);
}

std::vector<float> parse_input(const std::string& text, DType type) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  std::vector<float> values;
  for (std::size_t i = 0; i < bytes.size() / dtype_bytes(type); ++i) {
    values.push_back(load_float(bytes.data(), type, i));
  }
  return values;
}

DType float_type(const std::string& name) {
  return name == "f32" ? DType::kF32 : name == "f16" ? DType::kF16 : DType::kBF16;
}

TEST(MlxGolden, EveryFormatInputAndOracle) {
  std::ifstream file("tests/golden/quant/quantized.txt");
  ASSERT_TRUE(file.is_open());
  std::map<std::string, std::vector<float>> inputs;
  std::map<std::string, int> compared;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string kind;
    fields >> kind;
    std::string name;
    std::string type;
    if (kind == "input") {
      std::string values;
      fields >> name >> type >> values;
      inputs[name + " " + type] = parse_input(values, float_type(type));
    } else if (kind == "result") {
      std::string oracle;
      std::string format_name;
      std::string codes;
      std::string scales;
      std::string biases;
      fields >> oracle >> format_name >> name >> type >> codes >> scales >> biases;
      const auto format = format_from_name(format_name);
      ASSERT_TRUE(format.has_value()) << format_name;
      const bool metal = oracle.rfind("metal", 0) == 0;
      const bool nearest = oracle.find("nearest") != std::string::npos;
      const QuantizedMatrix matrix =
          quantized(inputs.at(name + " " + type), *format,
                    {.flavour = metal ? Flavour::kMetal : Flavour::kCpu,
                     .mx_scale = nearest ? MxScale::kNearest : MxScale::kUp,
                     .source_type = float_type(type)});
      const std::string what = oracle + " " + format_name + " " + name + " " + type;
      EXPECT_EQ(hex(matrix.codes), codes) << what;
      EXPECT_EQ(hex(matrix.scales), scales) << what;
      EXPECT_EQ(hex(matrix.biases), biases) << what;
      ++compared[oracle];
    }
  }
  EXPECT_GE(compared["cpu-up"], 500);
  EXPECT_GE(compared["metal-up"], 500);
  EXPECT_GE(compared["cpu-nearest"], 90);
  EXPECT_GE(compared["metal-nearest"], 90);
}

}  // namespace
}  // namespace lockstep::quant
