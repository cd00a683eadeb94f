// SPDX-License-Identifier: Apache-2.0
#include "lockstep/quant/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"

namespace lockstep::quant {
namespace {

static_assert(std::endian::native == std::endian::little, "stored numbers are read in place");

constexpr int kGroupMax = 128;

// Eight codes of kBits bits are exactly kBits bytes, so every full chunk starts at a byte.
constexpr std::int64_t kChunk = 8;

template <int kBits>
void pack_stream(const std::uint8_t* codes, std::int64_t count, std::byte* packed) {
  while (count > 0) {
    const std::int64_t n = std::min(count, kChunk);
    std::uint64_t word = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      DCHECK((codes[i] >> kBits) == 0);
      word |= static_cast<std::uint64_t>(codes[i]) << (i * kBits);
    }
    const auto bytes = static_cast<std::size_t>((n * kBits + 7) / 8);
    std::memcpy(packed, &word, bytes);
    codes += n;
    packed += bytes;
    count -= n;
  }
}

template <int kBits>
void unpack_stream(const std::byte* packed, std::int64_t count, std::uint8_t* codes) {
  constexpr std::uint64_t kMask = (1u << kBits) - 1;
  for (; count >= kChunk; count -= kChunk) {
    std::uint64_t word = 0;
    std::memcpy(&word, packed, kBits);
    for (int i = 0; i < kChunk; ++i) {
      codes[i] = static_cast<std::uint8_t>((word >> (i * kBits)) & kMask);
    }
    codes += kChunk;
    packed += kBits;
  }
  if (count == 0) return;
  std::uint64_t word = 0;
  std::memcpy(&word, packed, static_cast<std::size_t>((count * kBits + 7) / 8));
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::uint8_t>((word >> (i * kBits)) & kMask);
  }
}

constexpr std::array<float, 16> kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

constexpr std::array<float, 256> make_e4m3() {
  std::array<float, 256> table{};
  for (std::uint32_t code = 0; code < 256; ++code) {
    const std::uint32_t exponent = (code >> 3) & 15u;
    const std::uint32_t mantissa = code & 7u;
    float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    if (exponent != 0) magnitude = std::bit_cast<float>(((exponent + 120) << 23) | mantissa << 20);
    table[code] = (code & 0x80u) != 0 ? -magnitude : magnitude;
  }
  return table;
}
constexpr std::array<float, 256> kE4m3 = make_e4m3();

std::uint8_t byte_at(const std::byte* data, std::int64_t index) {
  return std::to_integer<std::uint8_t>(data[index]);
}

void expand_floats(const std::byte* data, DType type, std::int64_t begin, std::int64_t end,
                   float* out) {
  const auto first = static_cast<std::size_t>(begin);
  const auto count = static_cast<std::size_t>(end - begin);
  if (type == DType::kBF16) {  // by far the most common: worth a loop that vectorises
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, data + 2 * (first + i), 2);
      out[i] = bf16_to_f32(bits);
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i)
    out[i] = load_float(data, type, first + i);
}

// One group, or a part of one: `count` codes that share the scale (and bias) number `group`.
struct GroupPart {
  const std::uint8_t* codes;
  std::int64_t count;
  const std::byte* scales;  // of the row
  const std::byte* biases;
  std::int64_t group;
};

void decode_affine(const Format& format, const GroupPart& part, float* out) {
  const auto index = static_cast<std::size_t>(part.group);
  const float scale = load_float(part.scales, format.float_type, index);
  const float bias = load_float(part.biases, format.float_type, index);
  const int levels = 1 << format.bits;
  if (levels < part.count) {
    std::array<float, kGroupMax> values;
    for (int q = 0; q < levels; ++q) {
      values[static_cast<std::size_t>(q)] = std::fma(scale, static_cast<float>(q), bias);
    }
    for (std::int64_t i = 0; i < part.count; ++i)
      out[i] = values[part.codes[i]];
    return;
  }
  for (std::int64_t i = 0; i < part.count; ++i) {
    out[i] = std::fma(scale, static_cast<float>(part.codes[i]), bias);
  }
}

void decode_float_codes(const Format& format, const GroupPart& part, float* out) {
  const std::uint8_t scale_byte = byte_at(part.scales, part.group);
  const float scale =
      format.kind == Kind::kNvfp4 ? e4m3_to_f32(scale_byte) : e8m0_to_f32(scale_byte);
  const float* values = format.kind == Kind::kMxfp8 ? kE4m3.data() : kE2m1.data();
  for (std::int64_t i = 0; i < part.count; ++i)
    out[i] = values[part.codes[i]] * scale;
}

}  // namespace

void pack_codes(const std::uint8_t* codes, std::int64_t count, int bits, std::byte* packed) {
  switch (bits) {
    case 2:
      return pack_stream<2>(codes, count, packed);
    case 3:
      return pack_stream<3>(codes, count, packed);
    case 4:
      return pack_stream<4>(codes, count, packed);
    case 5:
      return pack_stream<5>(codes, count, packed);
    case 6:
      return pack_stream<6>(codes, count, packed);
    case 7:
      return pack_stream<7>(codes, count, packed);
    case 8:
      return pack_stream<8>(codes, count, packed);
    default:
      CHECK_MSG(false, "codes have 2 to 8 bits");
  }
}

void unpack_codes(const std::byte* packed, std::int64_t count, int bits, std::uint8_t* codes) {
  switch (bits) {
    case 2:
      return unpack_stream<2>(packed, count, codes);
    case 3:
      return unpack_stream<3>(packed, count, codes);
    case 4:
      return unpack_stream<4>(packed, count, codes);
    case 5:
      return unpack_stream<5>(packed, count, codes);
    case 6:
      return unpack_stream<6>(packed, count, codes);
    case 7:
      return unpack_stream<7>(packed, count, codes);
    case 8:
      return unpack_stream<8>(packed, count, codes);
    default:
      CHECK_MSG(false, "codes have 2 to 8 bits");
  }
}

float e2m1_to_f32(std::uint8_t code) {
  return kE2m1[code & 15u];
}

float e4m3_to_f32(std::uint8_t code) {
  return kE4m3[code];
}

float e8m0_to_f32(std::uint8_t byte) {
  // 2^-127 is below the normal range: its only bit stands in the mantissa.
  if (byte == 0) return std::bit_cast<float>(0x00400000u);
  return std::bit_cast<float>(static_cast<std::uint32_t>(byte) << 23);
}

void dequantize_row(const MatrixView& matrix, std::int64_t row, float* out) {
  dequantize_range(matrix, row, 0, matrix.cols, out);
}

void dequantize_range(const MatrixView& matrix, std::int64_t row, std::int64_t begin,
                      std::int64_t end, float* out) {
  CHECK(row >= 0 && row < matrix.rows && begin >= 0 && begin <= end && end <= matrix.cols);
  const Format& format = matrix.format;
  const auto skip = static_cast<std::size_t>(row);
  const std::byte* codes = matrix.codes + skip * row_bytes(format, matrix.cols);
  if (!format.quantized()) {
    expand_floats(codes, format.float_type, begin, end, out);
    return;
  }
  const std::size_t scale_offset = skip * scale_row_bytes(format, matrix.cols);
  const std::byte* scales = matrix.scales + scale_offset;
  const std::byte* biases = format.has_biases() ? matrix.biases + scale_offset : nullptr;
  const std::int64_t group_bytes = std::int64_t{format.group} * format.bits / 8;
  CHECK(format.group > 0 && format.group <= kGroupMax);
  std::array<std::uint8_t, kGroupMax> unpacked;
  for (std::int64_t c = begin; c < end;) {
    const std::int64_t group = c / format.group;
    const std::int64_t inside = c - group * format.group;
    const std::int64_t count = std::min<std::int64_t>(format.group - inside, end - c);
    unpack_codes(codes + group * group_bytes, inside + count, format.bits, unpacked.data());
    const GroupPart part = {unpacked.data() + inside, count, scales, biases, group};
    if (format.kind == Kind::kAffine) {
      decode_affine(format, part, out);
    } else {
      decode_float_codes(format, part, out);
    }
    c += count;
    out += count;
  }
}

}  // namespace lockstep::quant
