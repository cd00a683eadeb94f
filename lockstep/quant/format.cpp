// SPDX-License-Identifier: Apache-2.0
#include "lockstep/quant/format.h"

#include <array>

#include "lockstep/base/check.h"

namespace lockstep::quant {
namespace {

constexpr std::array kFloatTypes = {DType::kF32, DType::kF16, DType::kBF16};
constexpr std::array kAffineBits = {2, 3, 4, 5, 6, 8};
constexpr std::array kAffineGroups = {32, 64, 128};

const char* float_type_name(DType type) {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    default:
      CHECK_MSG(false, "not a float type of matrices");
      return "";
  }
}

template <class T, std::size_t N>
bool contains(const std::array<T, N>& values, T value) {
  for (const T& candidate : values) {
    if (candidate == value) return true;
  }
  return false;
}

}  // namespace

std::string Format::name() const {
  switch (kind) {
    case Kind::kFloat:
      return float_type_name(float_type);
    case Kind::kMxfp4:
      return "mxfp4";
    case Kind::kMxfp8:
      return "mxfp8";
    case Kind::kNvfp4:
      return "nvfp4";
    case Kind::kAffine:
      break;
  }
  std::string name = "affine" + std::to_string(bits) + "-g" + std::to_string(group);
  if (float_type != DType::kBF16) name += std::string("-") + float_type_name(float_type);
  return name;
}

Format float_format(DType type) {
  CHECK(contains(kFloatTypes, type));
  const int bits = static_cast<int>(8 * dtype_bytes(type));
  return {.kind = Kind::kFloat, .float_type = type, .bits = bits, .group = 0};
}

Format affine(int bits, int group, DType scale_type) {
  CHECK(contains(kAffineBits, bits));
  CHECK(contains(kAffineGroups, group));
  CHECK(contains(kFloatTypes, scale_type));
  return {.kind = Kind::kAffine, .float_type = scale_type, .bits = bits, .group = group};
}

Format mxfp4() {
  return {.kind = Kind::kMxfp4, .float_type = DType::kBF16, .bits = 4, .group = 32};
}
Format mxfp8() {
  return {.kind = Kind::kMxfp8, .float_type = DType::kBF16, .bits = 8, .group = 32};
}
Format nvfp4() {
  return {.kind = Kind::kNvfp4, .float_type = DType::kBF16, .bits = 4, .group = 16};
}

std::optional<Format> format_from_name(const std::string& name) {
  for (const Format& format : {mxfp4(), mxfp8(), nvfp4()}) {
    if (format.name() == name) return format;
  }
  for (DType type : kFloatTypes) {
    if (float_format(type).name() == name) return float_format(type);
    for (int bits : kAffineBits) {
      for (int group : kAffineGroups) {
        const Format format = affine(bits, group, type);
        if (format.name() == name) return format;
      }
    }
  }
  return std::nullopt;
}

std::size_t row_bytes(const Format& format, std::int64_t cols) {
  CHECK(cols >= 0 && (format.group == 0 || cols % format.group == 0));
  return static_cast<std::size_t>(cols) * static_cast<std::size_t>(format.bits) / 8;
}

std::size_t scale_row_bytes(const Format& format, std::int64_t cols) {
  if (!format.quantized()) return 0;
  CHECK(cols >= 0 && cols % format.group == 0);
  const std::size_t scale_bytes = format.has_biases() ? dtype_bytes(format.float_type) : 1;
  return static_cast<std::size_t>(cols / format.group) * scale_bytes;
}

MatrixView MatrixView::slice_rows(std::int64_t begin, std::int64_t count) const {
  CHECK(begin >= 0 && count >= 0 && begin <= rows && count <= rows - begin);
  MatrixView slice = *this;
  const auto skip = static_cast<std::size_t>(begin);
  slice.rows = count;
  slice.codes = codes + skip * row_bytes(format, cols);
  if (scales != nullptr) slice.scales = scales + skip * scale_row_bytes(format, cols);
  if (biases != nullptr) slice.biases = biases + skip * scale_row_bytes(format, cols);
  return slice;
}

}  // namespace lockstep::quant
