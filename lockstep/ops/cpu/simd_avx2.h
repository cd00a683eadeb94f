// SPDX-License-Identifier: Apache-2.0
// simd_scalar.h's vector as two 256-bit registers: lanes 0..7 and 8..15.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include "lockstep/ops/cpu/target.h"
#include "lockstep/ops/math.h"

LOCKSTEP_BEGIN_TARGET("avx2,fma,f16c")
namespace lockstep::ops::cpu::avx2 {

struct Vec {
  __m256 lo, hi;
};

inline constexpr int kTileColumnsMax = 6;
inline constexpr int kTileRows[kTileColumnsMax + 1] = {0, 4, 2, 2, 1, 1, 1};
inline constexpr int kBlockColumns = 3;
inline constexpr int kFusedColumnsMax = 2;
inline constexpr int kFusedRows[kFusedColumnsMax + 1] = {0, 2, 1};
inline constexpr bool kAffineTables = false;
inline constexpr int kValueColumns = 2;
inline constexpr int kResidentVecs = 0;

LOCKSTEP_INLINE __m256i low_lanes(std::int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}

LOCKSTEP_INLINE Vec zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
LOCKSTEP_INLINE Vec set1(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
LOCKSTEP_INLINE Vec load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
LOCKSTEP_INLINE Vec load_n(const float* p, std::int64_t n) {
  if (n >= 16) return load(p);
  if (n <= 8) return {_mm256_maskload_ps(p, low_lanes(n)), _mm256_setzero_ps()};
  return {_mm256_loadu_ps(p), _mm256_maskload_ps(p + 8, low_lanes(n - 8))};
}
LOCKSTEP_INLINE void store(float* p, Vec v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
LOCKSTEP_INLINE void store_n(float* p, Vec v, std::int64_t n) {
  if (n >= 16) return store(p, v);
  if (n <= 8) return _mm256_maskstore_ps(p, low_lanes(n), v.lo);
  _mm256_storeu_ps(p, v.lo);
  _mm256_maskstore_ps(p + 8, low_lanes(n - 8), v.hi);
}
LOCKSTEP_INLINE Vec add(Vec a, Vec b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
LOCKSTEP_INLINE Vec sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
LOCKSTEP_INLINE Vec mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
LOCKSTEP_INLINE Vec div(Vec a, Vec b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
LOCKSTEP_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
LOCKSTEP_INLINE Vec fma_n(Vec a, Vec b, Vec c, std::int64_t n) {
  const Vec all = fma(a, b, c);
  if (n >= 16) return all;
  return {_mm256_blendv_ps(c.lo, all.lo, _mm256_castsi256_ps(low_lanes(n))),
          _mm256_blendv_ps(c.hi, all.hi, _mm256_castsi256_ps(low_lanes(n - 8)))};
}
LOCKSTEP_INLINE Vec negate(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}
LOCKSTEP_INLINE Vec abs(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
LOCKSTEP_INLINE Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
LOCKSTEP_INLINE Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
LOCKSTEP_INLINE Vec where_negative(Vec x, Vec a, Vec b) {
  const __m256 z = _mm256_setzero_ps();
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, z, _CMP_LT_OQ)),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, z, _CMP_LT_OQ))};
}
LOCKSTEP_INLINE __m256 scale_half_by_power(__m256 p, __m256 shifted) {
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted),
                                     _mm256_castps_si256(_mm256_set1_ps(kRoundMagic)));
  const __m256i half = _mm256_srai_epi32(n, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}
LOCKSTEP_INLINE Vec scale_by_power(Vec p, Vec shifted) {
  return {scale_half_by_power(p.lo, shifted.lo), scale_half_by_power(p.hi, shifted.hi)};
}

// Lane i + lane i + 8, then i + 4.
LOCKSTEP_INLINE __m128 fold_to_4(Vec v) {
  const __m256 s = _mm256_add_ps(v.lo, v.hi);
  return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}
LOCKSTEP_INLINE float reduce(Vec v) {
  const __m128 s = fold_to_4(v);
  const __m128 t = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}
LOCKSTEP_INLINE void reduce4(Vec a, Vec b, Vec c, Vec d, float* out) {
  __m128 r0 = fold_to_4(a), r1 = fold_to_4(b), r2 = fold_to_4(c), r3 = fold_to_4(d);
  _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
  _mm_storeu_ps(out, _mm_add_ps(_mm_add_ps(r0, r2), _mm_add_ps(r1, r3)));
}
LOCKSTEP_INLINE void load_interleaved4(const float* p, Vec tap[4]) {
  alignas(32) float lanes[4][16];
  for (int block = 0; block < 4; ++block) {
    const float* from = p + 16 * block;
    __m128 r0 = _mm_loadu_ps(from), r1 = _mm_loadu_ps(from + 4);
    __m128 r2 = _mm_loadu_ps(from + 8), r3 = _mm_loadu_ps(from + 12);
    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    _mm_store_ps(lanes[0] + 4 * block, r0);
    _mm_store_ps(lanes[1] + 4 * block, r1);
    _mm_store_ps(lanes[2] + 4 * block, r2);
    _mm_store_ps(lanes[3] + 4 * block, r3);
  }
  for (int t = 0; t < 4; ++t)
    tap[t] = load(lanes[t]);
}

LOCKSTEP_INLINE __m128i load_16_bytes(const std::byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
LOCKSTEP_INLINE __m256 widen_bf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
LOCKSTEP_INLINE Vec load_bf16(const std::byte* p) {
  return {widen_bf16(load_16_bytes(p)), widen_bf16(load_16_bytes(p + 16))};
}
LOCKSTEP_INLINE Vec load_f16(const std::byte* p) {
  return {_mm256_cvtph_ps(load_16_bytes(p)), _mm256_cvtph_ps(load_16_bytes(p + 16))};
}
LOCKSTEP_INLINE Vec load_f32(const std::byte* p) {
  return load(reinterpret_cast<const float*>(p));
}

template <class Int>
LOCKSTEP_INLINE Int load_int(const std::byte* p) {
  Int value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}
// 2 kBits bytes, and no more: a row may end at the end of a mapped file.
template <int kBits>
LOCKSTEP_INLINE __m128i load_code_bytes(const std::byte* p) {
  if constexpr (kBits == 8) {
    return load_16_bytes(p);
  } else if constexpr (kBits == 2) {
    return _mm_cvtsi32_si128(load_int<std::int32_t>(p));
  } else if constexpr (kBits == 3) {
    const auto high = static_cast<std::int64_t>(load_int<std::uint16_t>(p + 4)) << 32;
    return _mm_cvtsi64_si128(high | static_cast<std::int64_t>(load_int<std::uint32_t>(p)));
  } else {
    const __m128i low = _mm_cvtsi64_si128(load_int<std::int64_t>(p));
    if constexpr (kBits == 4) return low;
    if constexpr (kBits == 5) return _mm_insert_epi16(low, load_int<std::uint16_t>(p + 8), 4);
    return _mm_insert_epi32(low, load_int<std::int32_t>(p + 8), 2);
  }
}

struct Codes {
  __m256i lo, hi;
};
LOCKSTEP_INLINE Codes bytes_to_lanes(__m128i bytes) {
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
// 8 bytes as 16 nibbles, one a lane.
LOCKSTEP_INLINE Codes nibbles(const std::byte* p) {
  const __m128i bytes = load_code_bytes<4>(p);
  const __m128i mask = _mm_set1_epi8(15);
  const __m128i low = _mm_and_si128(bytes, mask);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
  return bytes_to_lanes(_mm_unpacklo_epi8(low, high));
}
// Lane i's code begins at bit `bit_of(i)`: two bytes to the lane, shift, mask.
template <int kBits, int kFirst>
LOCKSTEP_INLINE __m256i code_half(__m256i raw) {
  alignas(32) static constexpr auto kBytes = [] {
    std::array<std::int8_t, 32> bytes{};
    for (int i = 0; i < 8; ++i) {
      const int bit = (kFirst + i) * kBits;
      const auto at = static_cast<std::size_t>(4 * i);
      bytes[at] = static_cast<std::int8_t>(bit / 8);
      bytes[at + 1] = static_cast<std::int8_t>(bit % 8 + kBits > 8 ? bit / 8 + 1 : -1);
      bytes[at + 2] = bytes[at + 3] = -1;
    }
    return bytes;
  }();
  const __m256i order = _mm256_load_si256(reinterpret_cast<const __m256i*>(kBytes.data()));
  const __m256i shift = _mm256_setr_epi32(kFirst * kBits % 8, (kFirst + 1) * kBits % 8,
                                          (kFirst + 2) * kBits % 8, (kFirst + 3) * kBits % 8,
                                          (kFirst + 4) * kBits % 8, (kFirst + 5) * kBits % 8,
                                          (kFirst + 6) * kBits % 8, (kFirst + 7) * kBits % 8);
  const __m256i codes = _mm256_srlv_epi32(_mm256_shuffle_epi8(raw, order), shift);
  return _mm256_and_si256(codes, _mm256_set1_epi32((1 << kBits) - 1));
}
template <int kBits>
LOCKSTEP_INLINE Vec load_codes(const std::byte* p) {
  Codes c;
  if constexpr (kBits == 8) {
    c = bytes_to_lanes(load_16_bytes(p));
  } else if constexpr (kBits == 4) {
    c = nibbles(p);
  } else {
    const __m256i raw = _mm256_broadcastsi128_si256(load_code_bytes<kBits>(p));
    c = {code_half<kBits, 0>(raw), code_half<kBits, 8>(raw)};
  }
  return {_mm256_cvtepi32_ps(c.lo), _mm256_cvtepi32_ps(c.hi)};
}
LOCKSTEP_INLINE __m256 lookup_half(__m256i codes, Vec table) {
  const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28));  // bit 3 to the sign
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.lo, codes),
                          _mm256_permutevar8x32_ps(table.hi, codes), upper);
}
LOCKSTEP_INLINE Vec lookup_codes4(const std::byte* p, Vec table) {
  const Codes c = nibbles(p);
  return {lookup_half(c.lo, table), lookup_half(c.hi, table)};
}
LOCKSTEP_INLINE Vec load_e4m3(const std::byte* p) {
  const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(load_16_bytes(p)), 8);
  const __m256i half = _mm256_and_si256(_mm256_srai_epi16(high, 1), _mm256_set1_epi16(-0x4001));
  const __m256 factor = _mm256_set1_ps(256.0f);
  return {_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), factor),
          _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), factor)};
}

}  // namespace lockstep::ops::cpu::avx2
LOCKSTEP_END_TARGET
