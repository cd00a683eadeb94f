// SPDX-License-Identifier: Apache-2.0
// The 16-lane float vector without an instruction set: what the kernel bodies (*_inl.h) use, and
// the definition of what simd_avx2.h and simd_avx512.h provide. A function ending in _n works on
// the lowest n lanes (1..16); loads give zero in the others, fma_n keeps `c` there.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lockstep/base/dtype.h"
#include "lockstep/ops/dot.h"
#include "lockstep/ops/math.h"

namespace lockstep::ops::cpu::scalar {

struct Vec {
  float lane[kDotLanes];
};

// Weight rows that one tile takes for 1 .. kTileColumnsMax activation rows, and the number of
// activation rows of a tile when there are more than that.
inline constexpr int kTileColumnsMax = 4;
inline constexpr int kTileRows[kTileColumnsMax + 1] = {0, 1, 1, 1, 1};
inline constexpr int kBlockColumns = 4;
// The same for quantised rows, expanded within the tile; more activation rows expand to memory.
inline constexpr int kFusedColumnsMax = 1;
inline constexpr int kFusedRows[kFusedColumnsMax + 1] = {0, 1};
// Affine 4-bit groups as a table of 16 numbers, instead of a product each.
inline constexpr bool kAffineTables = true;
inline constexpr int kValueColumns = 2;  // vectors of values that one tile of attention takes
// Vectors of a row of the delta state that two rows of it can spend in registers; 0: too few.
inline constexpr int kResidentVecs = 0;

template <class F>
inline Vec each(F f) {
  Vec r;
  for (int i = 0; i < kDotLanes; ++i)
    r.lane[i] = f(i);
  return r;
}

inline Vec zero() {
  return Vec{};
}
inline Vec set1(float x) {
  return each([&](int) { return x; });
}
inline Vec load(const float* p) {
  return each([&](int i) { return p[i]; });
}
inline Vec load_n(const float* p, std::int64_t n) {
  return each([&](int i) { return i < n ? p[i] : 0.0f; });
}
inline void store(float* p, Vec v) {
  std::memcpy(p, v.lane, sizeof(v.lane));
}
inline void store_n(float* p, Vec v, std::int64_t n) {
  std::memcpy(p, v.lane, static_cast<std::size_t>(n) * sizeof(float));
}
inline Vec add(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec sub(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Vec mul(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Vec div(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return each([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
}
inline Vec fma_n(Vec a, Vec b, Vec c, std::int64_t n) {
  return each([&](int i) { return i < n ? std::fma(a.lane[i], b.lane[i], c.lane[i]) : c.lane[i]; });
}
inline Vec negate(Vec a) {
  return each([&](int i) { return -a.lane[i]; });
}
inline Vec abs(Vec a) {
  return each([&](int i) { return std::fabs(a.lane[i]); });
}
// a > b ? a : b, and a < b ? a : b: `b` where either is NaN.
inline Vec max(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec min(Vec a, Vec b) {
  return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
// x < 0 ? a : b.
inline Vec where_negative(Vec x, Vec a, Vec b) {
  return each([&](int i) { return x.lane[i] < 0.0f ? a.lane[i] : b.lane[i]; });
}
// p * 2^n as exp_f32 does it, with n in the low bits of `shifted`.
inline Vec scale_by_power(Vec p, Vec shifted) {
  return each([&](int i) {
    const std::int32_t n =
        std::bit_cast<std::int32_t>(shifted.lane[i]) - std::bit_cast<std::int32_t>(kRoundMagic);
    return p.lane[i] * power_of_two(n >> 1) * power_of_two(n - (n >> 1));
  });
}
inline float reduce(Vec v) {
  return reduce_lanes(v.lane);
}
// out[i] = reduce(v_i).
inline void reduce4(Vec a, Vec b, Vec c, Vec d, float* out) {
  out[0] = reduce(a);
  out[1] = reduce(b);
  out[2] = reduce(c);
  out[3] = reduce(d);
}
// Lanes t of four interleaved streams: tap[t] lane i = p[4 i + t].
inline void load_interleaved4(const float* p, Vec tap[4]) {
  for (int t = 0; t < 4; ++t)
    tap[t] = each([&](int i) { return p[4 * i + t]; });
}

// Stored numbers at any alignment.
inline Vec load_bf16(const std::byte* p) {
  return each([&](int i) { return load_float(p, DType::kBF16, static_cast<std::size_t>(i)); });
}
inline Vec load_f16(const std::byte* p) {
  return each([&](int i) { return load_float(p, DType::kF16, static_cast<std::size_t>(i)); });
}
inline Vec load_f32(const std::byte* p) {
  return each([&](int i) { return load_float(p, DType::kF32, static_cast<std::size_t>(i)); });
}
// 16 unsigned codes of kBits bits, as floats. Reads 2 kBits bytes.
template <int kBits>
inline Vec load_codes(const std::byte* p) {
  return each([&](int i) {
    const int bit = i * kBits;
    unsigned window = std::to_integer<unsigned>(p[bit / 8]);
    if (bit % 8 + kBits > 8) window |= std::to_integer<unsigned>(p[bit / 8 + 1]) << 8;
    return static_cast<float>((window >> (bit % 8)) & ((1u << kBits) - 1u));
  });
}
// table[code] for 16 codes of 4 bits.
inline Vec lookup_codes4(const std::byte* p, Vec table) {
  return each([&](int i) {
    const auto byte = std::to_integer<unsigned>(p[i / 2]);
    return table.lane[i % 2 == 0 ? byte & 15u : byte >> 4];
  });
}
// 16 E4M3 numbers: as half floats their exponents are 8 too small.
inline Vec load_e4m3(const std::byte* p) {
  return each([&](int i) {
    const auto byte = std::to_integer<unsigned>(p[i]);
    const unsigned half = (byte & 0x80u) << 8 | (byte & 0x7fu) << 7;
    return f16_to_f32(static_cast<std::uint16_t>(half)) * 256.0f;
  });
}

}  // namespace lockstep::ops::cpu::scalar
