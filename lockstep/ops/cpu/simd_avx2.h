// SPDX-License-Identifier: Apache-2.0
// simd_scalar.h's vector as two 256-bit registers: lanes 0..7 and 8..15.
#pragma once

#include <cstddef>
#include <cstdint>
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
inline constexpr int kValueColumns = 2;

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

struct Codes {
  __m256i lo, hi;
};
LOCKSTEP_INLINE Codes bytes_to_lanes(__m128i bytes) {
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
// 8 bytes as 16 nibbles, one a lane.
LOCKSTEP_INLINE Codes nibbles(const std::byte* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i mask = _mm_set1_epi8(15);
  const __m128i low = _mm_and_si128(bytes, mask);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
  return bytes_to_lanes(_mm_unpacklo_epi8(low, high));
}
LOCKSTEP_INLINE Vec to_floats(Codes c) {
  return {_mm256_cvtepi32_ps(c.lo), _mm256_cvtepi32_ps(c.hi)};
}
LOCKSTEP_INLINE Vec load_u4(const std::byte* p) {
  return to_floats(nibbles(p));
}
LOCKSTEP_INLINE Vec load_u8(const std::byte* p) {
  return to_floats(bytes_to_lanes(load_16_bytes(p)));
}
LOCKSTEP_INLINE __m256 lookup_half(__m256i codes, __m256 low, __m256 high) {
  const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28));  // bit 3 to the sign
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, codes),
                          _mm256_permutevar8x32_ps(high, codes), upper);
}
LOCKSTEP_INLINE Vec lookup_u4(const std::byte* p, const float table[16]) {
  const Codes c = nibbles(p);
  const __m256 low = _mm256_loadu_ps(table), high = _mm256_loadu_ps(table + 8);
  return {lookup_half(c.lo, low, high), lookup_half(c.hi, low, high)};
}
LOCKSTEP_INLINE __m256 e4m3_half(__m256i codes) {
  const __m256i magnitude = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(0x7f)), 20);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(0x80)), 24);
  const __m256 value = _mm256_mul_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0x1p120f));
  return _mm256_or_ps(value, _mm256_castsi256_ps(sign));
}
LOCKSTEP_INLINE Vec load_e4m3(const std::byte* p) {
  const Codes c = bytes_to_lanes(load_16_bytes(p));
  return {e4m3_half(c.lo), e4m3_half(c.hi)};
}

}  // namespace lockstep::ops::cpu::avx2
LOCKSTEP_END_TARGET
