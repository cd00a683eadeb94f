// SPDX-License-Identifier: Apache-2.0
// Element types of stored tensors, and exact conversions of the 2-byte floats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

// Names as safetensors spells them (dtype_name).
enum class DType : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2
};

std::size_t dtype_bytes(DType type);
const char* dtype_name(DType type);
std::optional<DType> dtype_from_name(std::string_view name);

inline float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Round to nearest, ties to even; NaN stays a quiet NaN.
inline std::uint16_t f32_to_bf16(float value) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}

float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_f16(float value);  // nearest even; overflow to infinity

// Element `index` of an array of F32, F16 or BF16 at any alignment, as float.
float load_float(const std::byte* data, DType type, std::size_t index);

}  // namespace lockstep
