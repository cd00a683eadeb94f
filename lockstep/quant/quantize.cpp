// SPDX-License-Identifier: Apache-2.0
#include "lockstep/quant/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/quant/codec.h"

namespace lockstep::quant {
namespace {

constexpr int kGroupMax = 128;
constexpr float kE2m1Max = 6.0f;
constexpr float kE4m3Max = 448.0f;
constexpr float kAffineScaleMin = 1e-7f;

struct Group {
  const float* values;
  int size;
  std::int64_t first_column;
};

using Codes = std::array<std::uint8_t, kGroupMax>;

Error out_of_range(const Group& group, const Format& format, const char* what, float value) {
  return {ErrorCode::kLimit,
          "the " + std::string(what) + " of columns " + std::to_string(group.first_column) +
              " and following is " + std::to_string(value) + ", beyond the range of " +
              format.name() + "; choose another format for this tensor",
          ""};
}

float round_to(DType type, float value) {
  switch (type) {
    case DType::kBF16:
      return bf16_to_f32(f32_to_bf16(value));
    case DType::kF16:
      return f16_to_f32(f32_to_f16(value));
    default:
      return value;
  }
}

void store_float(std::byte* data, DType type, std::int64_t index, float value) {
  if (type == DType::kF32) {
    std::memcpy(data + 4 * index, &value, 4);
    return;
  }
  const std::uint16_t bits = type == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
  std::memcpy(data + 2 * index, &bits, 2);
}

float max_magnitude(const Group& group) {
  float largest = 0.0f;
  for (int i = 0; i < group.size; ++i)
    largest = std::max(largest, std::fabs(group.values[i]));
  return largest;
}

// ---- affine

float round_ratio(Flavour flavour, float ratio) {
  return flavour == Flavour::kMetal ? std::round(ratio) : std::rint(ratio);
}

// round(ratio) clamped to [0, levels]; NaN, from a group of equal huge values, is code 0.
std::uint8_t affine_code(Flavour flavour, float ratio, float levels) {
  const float clamped = ratio > 0.0f ? std::min(ratio, levels) : 0.0f;
  const int whole = static_cast<int>(clamped);
  const float rest = clamped - static_cast<float>(whole);
  const bool half_rounds_up = flavour == Flavour::kMetal || (whole & 1) != 0;
  const bool up = rest > 0.5f || (rest == 0.5f && half_rounds_up);
  return static_cast<std::uint8_t>(whole + (up ? 1 : 0));
}

struct AffineScale {
  float scale;
  float bias;
};

// Places the end of larger magnitude on a multiple of the scale, so that zero is a code.
AffineScale affine_scale(const Group& group, Flavour flavour, float levels) {
  float low = std::numeric_limits<float>::infinity();
  float high = flavour == Flavour::kMetal ? 0.0f : -low;
  for (int i = 0; i < group.size; ++i) {
    low = std::min(low, group.values[i]);
    high = std::max(high, group.values[i]);
  }
  const bool low_is_edge = std::fabs(low) > std::fabs(high);
  const float step = std::max((high - low) / levels, kAffineScaleMin);
  const float scale = low_is_edge ? step : -step;
  const float edge = low_is_edge ? low : high;
  const float edge_code = round_ratio(flavour, edge / scale);
  if (edge_code == 0.0f) return {.scale = scale, .bias = 0.0f};
  return {.scale = edge / edge_code, .bias = edge};
}

Status quantize_affine(const Group& group, const Format& format, Flavour flavour,
                       const QuantizedRow& row, Codes& codes) {
  const auto levels = static_cast<float>((1 << format.bits) - 1);
  const AffineScale exact = affine_scale(group, flavour, levels);
  if (!std::isfinite(round_to(format.float_type, exact.scale))) {
    return out_of_range(group, format, "scale", exact.scale);
  }
  if (!std::isfinite(round_to(format.float_type, exact.bias))) {
    return out_of_range(group, format, "bias", exact.bias);
  }
  // Codes come from the unrounded pair, decoding uses the rounded one: MLX does it so.
  for (int i = 0; i < group.size; ++i) {
    const float ratio = (group.values[i] - exact.bias) / exact.scale;
    codes[static_cast<std::size_t>(i)] = affine_code(flavour, ratio, levels);
  }
  const std::int64_t index = group.first_column / format.group;
  store_float(row.scales, format.float_type, index, exact.scale);
  store_float(row.biases, format.float_type, index, exact.bias);
  return {};
}

// ---- E2M1 and E4M3 codes

// First of the equally near entries of the code table, with distances in f32. Ties go towards
// zero, and code 8 (negative zero) loses to code 0.
std::uint8_t first_nearest_e2m1(float value) {
  const float a = std::fabs(value);
  if (a <= kE2m1Max) {
    const int code = (a > 0.25f) + (a > 0.75f) + (a > 1.25f) + (a > 1.75f) + (a > 2.5f) +
                     (a > 3.5f) + (a > 5.0f);
    return static_cast<std::uint8_t>(value < 0.0f && code != 0 ? code | 8 : code);
  }
  // Far outside, distances to several codes round to the same float and the first one wins.
  std::uint8_t best = 0;
  for (std::uint8_t code = 1; code < 16; ++code) {
    const float distance = std::fabs(value - e2m1_to_f32(code));
    if (distance < std::fabs(value - e2m1_to_f32(best))) best = code;
  }
  return best;
}

std::uint8_t encode(const Format& format, Flavour flavour, float value) {
  if (format.kind == Kind::kMxfp8) return f32_to_e4m3(value);
  return flavour == Flavour::kMetal ? f32_to_e2m1(value) : first_nearest_e2m1(value);
}

// Exponent of the smallest power of two that is not below a > 0.
int exponent_up(float a) {
  int exponent = 0;
  const float fraction = std::frexp(a, &exponent);  // [0.5, 1)
  return fraction == 0.5f ? exponent - 1 : exponent;
}

// The E8M0 byte of a group whose largest magnitude is `largest`.
std::uint8_t e8m0_scale(const Format& format, const QuantizeOptions& options, float largest) {
  const bool metal = options.flavour == Flavour::kMetal;
  const float code_max = format.kind == Kind::kMxfp4 ? kE2m1Max : kE4m3Max;
  float a = largest / code_max;
  if (!metal) a = round_to(options.source_type, a);
  if (a == 0.0f) return metal ? 0 : 127;
  int exponent = 0;
  if (options.mx_scale == MxScale::kUp) {
    exponent = exponent_up(a);
  } else if (metal) {
    exponent = static_cast<int>(std::round(std::log2(a)));
  } else {
    exponent = static_cast<int>(std::rint(round_to(options.source_type, std::log2(a))));
  }
  return static_cast<std::uint8_t>(std::clamp(exponent, -127, 127) + 127);
}

void quantize_mx(const Group& group, const Format& format, const QuantizeOptions& options,
                 std::byte* scales, Codes& codes) {
  const float largest = max_magnitude(group);
  std::byte& scale = scales[group.first_column / format.group];
  // MLX writes meaningless bytes for a group of subnormal numbers; it becomes zero here.
  if (largest != 0.0f && largest < std::numeric_limits<float>::min()) {
    scale = std::byte{0};
    std::fill_n(codes.begin(), group.size, std::uint8_t{0});
    return;
  }
  const std::uint8_t byte = e8m0_scale(format, options, largest);
  scale = std::byte{byte};
  const float reciprocal = e8m0_to_f32(static_cast<std::uint8_t>(254 - byte));  // exact
  for (int i = 0; i < group.size; ++i) {
    codes[static_cast<std::size_t>(i)] =
        encode(format, options.flavour, group.values[i] * reciprocal);
  }
}

void quantize_nvfp4(const Group& group, const Format& format, Flavour flavour, std::byte* scales,
                    Codes& codes) {
  const std::uint8_t byte = f32_to_e4m3(max_magnitude(group) / kE2m1Max);
  scales[group.first_column / format.group] = std::byte{byte};
  const float scale = e4m3_to_f32(byte);
  if (scale == 0.0f) {
    std::fill_n(codes.begin(), group.size, std::uint8_t{0});
    return;
  }
  const float reciprocal = 1.0f / scale;
  for (int i = 0; i < group.size; ++i) {
    const float value = group.values[i];
    const float scaled = flavour == Flavour::kMetal ? value * reciprocal : value / scale;
    codes[static_cast<std::size_t>(i)] = encode(format, flavour, scaled);
  }
}

Status store_floats(const float* values, std::int64_t cols, const Format& format,
                    std::byte* codes) {
  for (std::int64_t c = 0; c < cols; ++c) {
    if (!std::isfinite(round_to(format.float_type, values[c]))) {
      const Group group = {.values = values + c, .size = 1, .first_column = c};
      return out_of_range(group, format, "value", values[c]);
    }
    store_float(codes, format.float_type, c, values[c]);
  }
  return {};
}

Status check_width(std::int64_t cols, const Format& format) {
  if (format.quantized() && cols % format.group != 0) {
    return Error{ErrorCode::kInconsistent,
                 format.name() + " needs rows of a multiple of " + std::to_string(format.group) +
                     " columns, found " + std::to_string(cols) +
                     "; choose a smaller group or keep the tensor as bf16",
                 ""};
  }
  return {};
}

Status check_finite(const float* values, std::int64_t cols) {
  for (std::int64_t c = 0; c < cols; ++c) {
    if (!std::isfinite(values[c])) {
      return Error{ErrorCode::kFormat,
                   "column " + std::to_string(c) + " is " + std::to_string(values[c]) +
                       ", expected a finite number; the source tensor is damaged",
                   ""};
    }
  }
  return {};
}

}  // namespace

std::uint8_t f32_to_e2m1(float value) {
  const float a = std::fabs(value);
  const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                   (a >= 3.5f) + (a > 5.0f);
  return static_cast<std::uint8_t>(code | (std::signbit(value) ? 8 : 0));
}

std::uint8_t f32_to_e4m3(float value) {
  const float a = std::fabs(value);
  const std::uint32_t sign = std::signbit(value) ? 0x80u : 0u;
  if (a >= kE4m3Max) return static_cast<std::uint8_t>(sign | 0x7eu);
  // Below 2^-6 codes count steps of 2^-9; eight steps are the first normal code.
  if (a < 0x1p-6f) {
    return static_cast<std::uint8_t>(sign | static_cast<std::uint32_t>(std::rint(a * 0x1p9f)));
  }
  const auto bits = std::bit_cast<std::uint32_t>(a);
  const std::uint32_t rounded = (bits + 0x7ffffu + ((bits >> 20) & 1u)) >> 20;
  return static_cast<std::uint8_t>(sign | (rounded - (120u << 3)));
}

Status quantize_row(const float* values, std::int64_t cols, const Format& format,
                    const QuantizeOptions& options, const QuantizedRow& row) {
  CHECK(cols >= 0);
  LOCKSTEP_TRY_STATUS(check_width(cols, format));
  LOCKSTEP_TRY_STATUS(check_finite(values, cols));
  if (!format.quantized()) return store_floats(values, cols, format, row.codes);
  CHECK(format.group > 0 && format.group <= kGroupMax);
  const std::int64_t group_bytes = std::int64_t{format.group} * format.bits / 8;
  Codes codes;
  for (std::int64_t c = 0; c < cols; c += format.group) {
    const Group group = {.values = values + c, .size = format.group, .first_column = c};
    if (format.kind == Kind::kAffine) {
      LOCKSTEP_TRY_STATUS(quantize_affine(group, format, options.flavour, row, codes));
    } else if (format.kind == Kind::kNvfp4) {
      quantize_nvfp4(group, format, options.flavour, row.scales, codes);
    } else {
      quantize_mx(group, format, options, row.scales, codes);
    }
    pack_codes(codes.data(), format.group, format.bits, row.codes + c / format.group * group_bytes);
  }
  return {};
}

MatrixView QuantizedMatrix::view() const {
  return {.format = format,
          .rows = rows,
          .cols = cols,
          .codes = codes.data(),
          .scales = format.quantized() ? scales.data() : nullptr,
          .biases = format.has_biases() ? biases.data() : nullptr};
}

Result<QuantizedMatrix> quantize_matrix(const float* values, std::int64_t rows, std::int64_t cols,
                                        const Format& format, const QuantizeOptions& options) {
  CHECK(rows >= 0 && cols >= 0);
  LOCKSTEP_TRY_STATUS(check_width(cols, format));
  const std::size_t code_bytes = row_bytes(format, cols);
  const std::size_t scale_bytes = scale_row_bytes(format, cols);
  const auto count = static_cast<std::size_t>(rows);
  QuantizedMatrix matrix = {
      .format = format,
      .rows = rows,
      .cols = cols,
      .codes = std::vector<std::byte>(count * code_bytes),
      .scales = std::vector<std::byte>(count * scale_bytes),
      .biases = std::vector<std::byte>(format.has_biases() ? count * scale_bytes : 0)};
  for (std::size_t r = 0; r < count; ++r) {
    const QuantizedRow row = {
        .codes = matrix.codes.data() + r * code_bytes,
        .scales = matrix.scales.data() + r * scale_bytes,
        .biases = format.has_biases() ? matrix.biases.data() + r * scale_bytes : nullptr};
    Status status =
        quantize_row(values + r * static_cast<std::size_t>(cols), cols, format, options, row);
    if (!status.ok()) {
      Error error = std::move(status).error();
      error.where = "row " + std::to_string(r);
      return error;
    }
  }
  return matrix;
}

}  // namespace lockstep::quant
