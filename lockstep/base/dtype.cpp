// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/dtype.h"

#include <cstring>

#include "lockstep/base/check.h"

namespace lockstep {
namespace {

struct Row {
  DType type;
  const char* name;
  std::size_t bytes;
};

constexpr Row kRows[] = {
    {DType::kF64, "F64", 8},   {DType::kF32, "F32", 4},        {DType::kF16, "F16", 2},
    {DType::kBF16, "BF16", 2}, {DType::kI64, "I64", 8},        {DType::kI32, "I32", 4},
    {DType::kI16, "I16", 2},   {DType::kI8, "I8", 1},          {DType::kU64, "U64", 8},
    {DType::kU32, "U32", 4},   {DType::kU16, "U16", 2},        {DType::kU8, "U8", 1},
    {DType::kBool, "BOOL", 1}, {DType::kF8E4M3, "F8_E4M3", 1}, {DType::kF8E5M2, "F8_E5M2", 1},
};

const Row& row(DType type) {
  for (const Row& r : kRows)
    if (r.type == type) return r;
  CHECK(false);
  return kRows[0];
}

}  // namespace

std::size_t dtype_bytes(DType type) {
  return row(type).bytes;
}
const char* dtype_name(DType type) {
  return row(type).name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& r : kRows)
    if (name == r.name) return r.type;
  return std::nullopt;
}

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // subnormals are exact
  return (bits & 0x8000u) ? -magnitude : magnitude;
}

std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // result is subnormal: adding 2^-1 * 2^... rounds in hardware
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float load_float(const std::byte* data, DType type, std::size_t index) {
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, data + 4 * index, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, data + 2 * index, 2);
  CHECK(type == DType::kBF16 || type == DType::kF16);
  return type == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

}  // namespace lockstep
