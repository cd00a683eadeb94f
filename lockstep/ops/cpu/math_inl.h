// SPDX-License-Identifier: Apache-2.0
// ops/math.h, 16 lanes at a time: the same operations in the same order. Included once per target,
// inside its namespace.

LOCKSTEP_INLINE Vec exp(Vec x) {
  x = max(set1(kExpMin), x);
  x = min(set1(kExpMax), x);
  const Vec shifted = fma(x, set1(kLog2E), set1(kRoundMagic));
  const Vec n = negate(sub(shifted, set1(kRoundMagic)));
  const Vec r = fma(n, set1(kLn2Low), fma(n, set1(kLn2High), x));
  Vec p = set1(kExpTerms[0]);
  LOCKSTEP_UNROLL
  for (int i = 1; i < 8; ++i)
    p = fma(p, r, set1(kExpTerms[i]));
  return scale_by_power(p, shifted);
}

LOCKSTEP_INLINE Vec sigmoid(Vec x) {
  const Vec e = exp(negate(abs(x)));
  const Vec d = div(set1(1.0f), add(set1(1.0f), e));
  return where_negative(x, mul(e, d), d);
}

LOCKSTEP_INLINE Vec silu(Vec x) {
  return mul(x, sigmoid(x));
}
