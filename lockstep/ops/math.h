// SPDX-License-Identifier: Apache-2.0
// The transcendental functions of the forward pass in float32: one written sequence of operations
// each, without branches, so that vector bodies give the same bits lane by lane (cpu/math_inl.h).
// Within 2 units in the last place of the true value unless said otherwise (math_test.cpp).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace lockstep::ops {

// Adding and removing this rounds to the nearest integer; the sum's low bits are that integer.
inline constexpr float kRoundMagic = 0x1.8p23f;
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0x1.62e430p-1f;
inline constexpr float kLn2Low = -0x1.05c610p-29f;
// Beyond these e^x is 0 or infinity in float32.
inline constexpr float kExpMin = -104.0f;
inline constexpr float kExpMax = 89.0f;
// 1 / k!, k = 7 .. 0. On |r| <= ln(2) / 2 the series stops 5.2e-9 short of e^r, relative.
inline constexpr float kExpTerms[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                      1.0f / 6,    0.5f,       1.0f,       1.0f};
// 1 / (2k + 1), k = 7 .. 0: atanh(s) / s in s * s. For s <= 1/3 the rest is below 1.6e-9.
inline constexpr float kAtanhTerms[] = {1.0f / 15, 1.0f / 13, 1.0f / 11, 1.0f / 9,
                                        1.0f / 7,  1.0f / 5,  1.0f / 3,  1.0f};

// A delta state is kept as scale * numbers, so that a token's decay costs one product per head.
// Once the scale falls below this it moves into the numbers.
inline constexpr float kDeltaScaleMin = 0x1p-24f;

inline float power_of_two(std::int32_t exponent) {
  return std::bit_cast<float>((exponent + 127) << 23);
}

// e^x. NaN stays NaN. Results below the normal range are rounded once.
inline float exp_f32(float x) {
  x = kExpMin > x ? kExpMin : x;
  x = kExpMax < x ? kExpMax : x;
  const float shifted = std::fma(x, kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  const float r = std::fma(-n, kLn2Low, std::fma(-n, kLn2High, x));
  float p = kExpTerms[0];
  for (int i = 1; i < 8; ++i)
    p = std::fma(p, r, kExpTerms[i]);
  // In two steps, since 2^n alone may be out of range.
  const std::int32_t exponent =
      std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRoundMagic);
  const std::int32_t half = exponent >> 1;
  return p * power_of_two(half) * power_of_two(exponent - half);
}

// 1 / (1 + e^-x). 4 units in the last place.
inline float sigmoid(float x) {
  const float e = exp_f32(-std::fabs(x));
  const float d = 1.0f / (1.0f + e);
  return x < 0.0f ? e * d : d;
}

inline float silu(float x) {
  return x * sigmoid(x);
}

// log(1 + y) for 0 <= y <= 1, as 2 atanh(y / (2 + y)). 4 units in the last place.
inline float log1p_unit(float y) {
  const float s = y / (2.0f + y);
  const float s2 = s * s;
  float p = kAtanhTerms[0];
  for (int i = 1; i < 8; ++i)
    p = std::fma(p, s2, kAtanhTerms[i]);
  return (s + s) * p;
}

// log(1 + e^x). 4 units in the last place.
inline float softplus(float x) {
  const float positive = x > 0.0f ? x : 0.0f;
  return positive + log1p_unit(exp_f32(-std::fabs(x)));
}

// 1 / sqrt(mean of squares + eps), from the sum of squares of `count` numbers.
inline float inverse_rms(float sum_of_squares, std::int64_t count, float eps) {
  return 1.0f / std::sqrt(sum_of_squares / static_cast<float>(count) + eps);
}

}  // namespace lockstep::ops
