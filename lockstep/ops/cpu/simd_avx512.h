// SPDX-License-Identifier: Apache-2.0
// simd_scalar.h's vector as one 512-bit register.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include "lockstep/ops/cpu/target.h"
#include "lockstep/ops/math.h"

LOCKSTEP_BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
namespace lockstep::ops::cpu::avx512 {

struct Vec {
  __m512 r;
};

inline constexpr int kTileColumnsMax = 9;
inline constexpr int kTileRows[kTileColumnsMax + 1] = {0, 8, 8, 4, 4, 4, 4, 4, 2, 2};
inline constexpr int kBlockColumns = 6;
inline constexpr int kFusedColumnsMax = 5;
inline constexpr int kFusedRows[kFusedColumnsMax + 1] = {0, 4, 4, 4, 4, 4};
inline constexpr bool kAffineTables = true;
inline constexpr int kValueColumns = 4;
inline constexpr int kResidentVecs = 8;

LOCKSTEP_INLINE __mmask16 low_lanes(std::int64_t n) {
  return static_cast<__mmask16>((1u << static_cast<unsigned>(n)) - 1u);
}

LOCKSTEP_INLINE Vec zero() {
  return {_mm512_setzero_ps()};
}
LOCKSTEP_INLINE Vec set1(float x) {
  return {_mm512_set1_ps(x)};
}
LOCKSTEP_INLINE Vec load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
// Whole vectors take the plain instruction: later loads can't be served from a masked store.
LOCKSTEP_INLINE Vec load_n(const float* p, std::int64_t n) {
  if (n >= 16) return load(p);
  return {_mm512_maskz_loadu_ps(low_lanes(n), p)};
}
LOCKSTEP_INLINE void store(float* p, Vec v) {
  _mm512_storeu_ps(p, v.r);
}
LOCKSTEP_INLINE void store_n(float* p, Vec v, std::int64_t n) {
  if (n >= 16) return store(p, v);
  _mm512_mask_storeu_ps(p, low_lanes(n), v.r);
}
LOCKSTEP_INLINE Vec add(Vec a, Vec b) {
  return {_mm512_add_ps(a.r, b.r)};
}
LOCKSTEP_INLINE Vec sub(Vec a, Vec b) {
  return {_mm512_sub_ps(a.r, b.r)};
}
LOCKSTEP_INLINE Vec mul(Vec a, Vec b) {
  return {_mm512_mul_ps(a.r, b.r)};
}
LOCKSTEP_INLINE Vec div(Vec a, Vec b) {
  return {_mm512_div_ps(a.r, b.r)};
}
LOCKSTEP_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.r, b.r, c.r)};
}
LOCKSTEP_INLINE Vec fma_n(Vec a, Vec b, Vec c, std::int64_t n) {
  if (n >= 16) return fma(a, b, c);
  return {_mm512_mask3_fmadd_ps(a.r, b.r, c.r, low_lanes(n))};
}
LOCKSTEP_INLINE Vec negate(Vec a) {
  return {_mm512_xor_ps(a.r, _mm512_set1_ps(-0.0f))};
}
LOCKSTEP_INLINE Vec abs(Vec a) {
  return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.r)};
}
LOCKSTEP_INLINE Vec max(Vec a, Vec b) {
  return {_mm512_max_ps(a.r, b.r)};
}
LOCKSTEP_INLINE Vec min(Vec a, Vec b) {
  return {_mm512_min_ps(a.r, b.r)};
}
LOCKSTEP_INLINE Vec where_negative(Vec x, Vec a, Vec b) {
  const __mmask16 negative = _mm512_cmp_ps_mask(x.r, _mm512_setzero_ps(), _CMP_LT_OQ);
  return {_mm512_mask_blend_ps(negative, b.r, a.r)};
}
LOCKSTEP_INLINE Vec scale_by_power(Vec p, Vec shifted) {
  const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(shifted.r),
                                     _mm512_castps_si512(_mm512_set1_ps(kRoundMagic)));
  const __m512i half = _mm512_srai_epi32(n, 1);
  const __m512i bias = _mm512_set1_epi32(127);
  const __m512i a = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
  const __m512i b = _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(n, half), bias), 23);
  return {_mm512_mul_ps(_mm512_mul_ps(p.r, _mm512_castsi512_ps(a)), _mm512_castsi512_ps(b))};
}

// Lane i + lane i + 8, then i + 4.
LOCKSTEP_INLINE __m128 fold_to_4(Vec v) {
  const __m256 s = _mm256_add_ps(_mm512_castps512_ps256(v.r), _mm512_extractf32x8_ps(v.r, 1));
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
  const __m512i low = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
  const __m512i high =
      _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
  const __m512 r0 = _mm512_loadu_ps(p), r1 = _mm512_loadu_ps(p + 16);
  const __m512 r2 = _mm512_loadu_ps(p + 32), r3 = _mm512_loadu_ps(p + 48);
  const __m512 a01 = _mm512_permutex2var_ps(r0, low, r1), b01 = _mm512_permutex2var_ps(r2, low, r3);
  const __m512 a23 = _mm512_permutex2var_ps(r0, high, r1);
  const __m512 b23 = _mm512_permutex2var_ps(r2, high, r3);
  tap[0].r = _mm512_shuffle_f32x4(a01, b01, 0x44);
  tap[1].r = _mm512_shuffle_f32x4(a01, b01, 0xee);
  tap[2].r = _mm512_shuffle_f32x4(a23, b23, 0x44);
  tap[3].r = _mm512_shuffle_f32x4(a23, b23, 0xee);
}

LOCKSTEP_INLINE __m128i load_16_bytes(const std::byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
LOCKSTEP_INLINE Vec load_bf16(const std::byte* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
LOCKSTEP_INLINE Vec load_f16(const std::byte* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
LOCKSTEP_INLINE Vec load_f32(const std::byte* p) {
  return {_mm512_loadu_ps(p)};
}

template <class Int>
LOCKSTEP_INLINE Int load_int(const std::byte* p) {
  Int value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}
// Which two bytes hold lane i's code, and where it begins in them.
template <int kBits>
struct CodeLanes {
  alignas(64) std::int8_t bytes[64];
  alignas(64) std::int32_t shift[16];
  constexpr CodeLanes() : bytes{}, shift{} {
    for (int i = 0; i < 16; ++i) {
      const int first = i * kBits / 8;
      const bool straddles = i * kBits % 8 + kBits > 8;
      bytes[4 * i] = static_cast<std::int8_t>(first);
      bytes[4 * i + 1] = static_cast<std::int8_t>(straddles ? first + 1 : -1);
      bytes[4 * i + 2] = bytes[4 * i + 3] = -1;
      shift[i] = i * kBits % 8;
    }
  }
};
template <int kBits>
inline constexpr CodeLanes<kBits> kCodeLanes;

template <int kBits>
LOCKSTEP_INLINE Vec load_codes(const std::byte* p) {
  if constexpr (kBits == 8) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_16_bytes(p)))};
  } else {
    constexpr auto kRead = static_cast<__mmask16>((1u << (2 * kBits)) - 1u);
    const __m512i raw = _mm512_broadcast_i32x4(_mm_maskz_loadu_epi8(kRead, p));
    const CodeLanes<kBits>& lanes = kCodeLanes<kBits>;
    const __m512i windows = _mm512_shuffle_epi8(raw, _mm512_load_si512(lanes.bytes));
    const __m512i codes = _mm512_srlv_epi32(windows, _mm512_load_si512(lanes.shift));
    return {_mm512_cvtepi32_ps(_mm512_and_si512(codes, _mm512_set1_epi32((1 << kBits) - 1)))};
  }
}
LOCKSTEP_INLINE Vec lookup_codes4(const std::byte* p, Vec table) {
  const __m512i low = _mm512_set1_epi32(load_int<std::int32_t>(p));
  const __m512i both = _mm512_mask_set1_epi32(low, 0xff00, load_int<std::int32_t>(p + 4));
  const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  // The permutation looks at the lowest 4 bits only.
  return {_mm512_permutexvar_ps(_mm512_srlv_epi32(both, shift), table.r)};
}
LOCKSTEP_INLINE Vec load_e4m3(const std::byte* p) {
  const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(load_16_bytes(p)), 8);
  const __m256i half = _mm256_and_si256(_mm256_srai_epi16(high, 1), _mm256_set1_epi16(-0x4001));
  return {_mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f))};
}

}  // namespace lockstep::ops::cpu::avx512
LOCKSTEP_END_TARGET
