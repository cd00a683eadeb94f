// SPDX-License-Identifier: Apache-2.0
#include "lockstep/quant/format.h"

#include <array>
#include <gtest/gtest.h>
#include <set>

namespace lockstep::quant {
namespace {

std::vector<Format> all_formats() {
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

TEST(Format, NamesAreUniqueAndReadBack) {
  std::set<std::string> names;
  for (const Format& format : all_formats()) {
    EXPECT_TRUE(names.insert(format.name()).second) << format.name();
    EXPECT_EQ(format_from_name(format.name()), format) << format.name();
  }
  EXPECT_EQ(affine(4, 64).name(), "affine4-g64");
  EXPECT_EQ(affine(6, 32, DType::kF16).name(), "affine6-g32-f16");
  EXPECT_EQ(float_format(DType::kBF16).name(), "bf16");
}

TEST(Format, UnknownNamesAreRefused) {
  for (const char* name : {"", "int4", "affine7-g64", "affine4-g16", "affine4", "MXFP4", "bf16 "}) {
    EXPECT_EQ(format_from_name(name), std::nullopt) << name;
  }
}

// Sizes of spec 6.9, in bits per weight including scales and biases.
TEST(Format, BitsPerWeight) {
  const auto bits_per_weight = [](const Format& format) {
    const std::size_t scales = scale_row_bytes(format, 2048) * (format.has_biases() ? 2 : 1);
    return static_cast<double>(8 * (row_bytes(format, 2048) + scales)) / 2048.0;
  };
  EXPECT_EQ(bits_per_weight(affine(4, 64)), 4.5);
  EXPECT_EQ(bits_per_weight(affine(6, 64)), 6.5);
  EXPECT_EQ(bits_per_weight(affine(8, 64)), 8.5);
  EXPECT_EQ(bits_per_weight(affine(4, 32)), 5.0);
  EXPECT_EQ(bits_per_weight(affine(3, 128, DType::kF32)), 3.5);
  EXPECT_EQ(bits_per_weight(mxfp4()), 4.25);
  EXPECT_EQ(bits_per_weight(mxfp8()), 8.25);
  EXPECT_EQ(bits_per_weight(nvfp4()), 4.5);
  EXPECT_EQ(bits_per_weight(float_format(DType::kF32)), 32.0);
  EXPECT_EQ(bits_per_weight(float_format(DType::kBF16)), 16.0);
}

TEST(Format, SlicesMoveEveryPointerByItsOwnStride) {
  std::array<std::byte, 4096> memory{};
  const MatrixView matrix = {.format = affine(3, 32),
                             .rows = 5,
                             .cols = 64,
                             .codes = memory.data(),
                             .scales = memory.data() + 1000,
                             .biases = memory.data() + 2000};
  const MatrixView slice = matrix.slice_rows(2, 3);
  EXPECT_EQ(slice.rows, 3);
  EXPECT_EQ(slice.cols, 64);
  EXPECT_EQ(slice.codes - matrix.codes, 2 * 24);
  EXPECT_EQ(slice.scales - matrix.scales, 2 * 4);
  EXPECT_EQ(slice.biases - matrix.biases, 2 * 4);
  EXPECT_EQ(matrix.slice_rows(5, 0).rows, 0);

  const MatrixView plain = {
      .format = float_format(DType::kBF16), .rows = 4, .cols = 3, .codes = memory.data()};
  EXPECT_EQ(plain.slice_rows(3, 1).codes - memory.data(), 18);
  EXPECT_EQ(plain.slice_rows(3, 1).scales, nullptr);
}

TEST(FormatDeathTest, MisuseEndsTheProcess) {
  EXPECT_DEATH(affine(7, 64), "");
  EXPECT_DEATH(affine(4, 16), "");
  EXPECT_DEATH(float_format(DType::kI32), "");
  EXPECT_DEATH(row_bytes(mxfp4(), 33), "");
  EXPECT_DEATH((MatrixView{.format = mxfp4(), .rows = 2, .cols = 32}.slice_rows(1, 2)), "");
}

}  // namespace
}  // namespace lockstep::quant
