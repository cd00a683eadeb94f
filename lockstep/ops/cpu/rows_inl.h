// SPDX-License-Identifier: Apache-2.0
// Verbs on single rows of floats. Included once per target, inside its namespace.

LOCKSTEP_INLINE std::int64_t lanes_left(std::int64_t k, std::int64_t n) {
  return n - k < kDotLanes ? n - k : kDotLanes;
}

inline float dot_row(const float* a, const float* b, std::int64_t n) {
  Vec sum = zero();
  for (std::int64_t k = 0; k < n; k += kDotLanes) {
    const std::int64_t lanes = lanes_left(k, n);
    sum = fma_n(load_n(a + k, lanes), load_n(b + k, lanes), sum, lanes);
  }
  return reduce(sum);
}

inline float sum_of_squares(const float* x, std::int64_t n) {
  return dot_row(x, x, n);
}

inline void rms_norm_row(const float* x, const float* gamma, float eps, std::int64_t n,
                         float* out) {
  const Vec scale = set1(inverse_rms(sum_of_squares(x, n), n, eps));
  for (std::int64_t k = 0; k < n; k += kDotLanes) {
    const std::int64_t lanes = lanes_left(k, n);
    store_n(out + k, mul(load_n(gamma + k, lanes), mul(load_n(x + k, lanes), scale)), lanes);
  }
}

inline void gated_product(const float* gate, const float* up, std::int64_t n, float* out) {
  for (std::int64_t k = 0; k < n; k += kDotLanes) {
    const std::int64_t lanes = lanes_left(k, n);
    store_n(out + k, mul(silu(load_n(gate + k, lanes)), load_n(up + k, lanes)), lanes);
  }
}

inline void add_weighted(const WeightedRows& rows, std::int64_t n, float* x) {
  for (std::int64_t k = 0; k < n; k += kDotLanes) {
    const std::int64_t lanes = lanes_left(k, n);
    Vec sum = zero();
    for (std::int64_t i = 0; i < rows.count; ++i) {
      const float* product = rows.products + rows.places[i] * rows.stride + k;
      sum = fma(set1(rows.weights[i]), load_n(product, lanes), sum);
    }
    store_n(x + k, add(load_n(x + k, lanes), sum), lanes);
  }
}

// p = e^(p - largest); returns the sum, in 16 lanes by index, then folded.
inline float exp_and_sum(float* p, std::int64_t n, float largest) {
  const Vec top = set1(largest);
  const Vec one = set1(1.0f);
  Vec sum = zero();
  for (std::int64_t k = 0; k < n; k += kDotLanes) {
    const std::int64_t lanes = lanes_left(k, n);
    const Vec e = exp(sub(load_n(p + k, lanes), top));
    store_n(p + k, e, lanes);
    sum = fma_n(e, one, sum, lanes);
  }
  return reduce(sum);
}

inline void softmax(float* p, std::int64_t n) {
  float largest = p[0];
  for (std::int64_t i = 1; i < n; ++i)
    largest = p[i] > largest ? p[i] : largest;
  const Vec sum = set1(exp_and_sum(p, n, largest));
  for (std::int64_t k = 0; k < n; k += kDotLanes) {
    const std::int64_t lanes = lanes_left(k, n);
    store_n(p + k, div(load_n(p + k, lanes), sum), lanes);
  }
}

// Norm, then rotation of pairs (d, d + pairs).
inline void norm_and_turn(const TurnArgs& a, const float* x, float* out) {
  rms_norm_row(x, a.gamma, a.eps, a.head_dim, out);
  for (std::int64_t d = 0; d < a.pairs; d += kDotLanes) {
    const std::int64_t lanes = lanes_left(d, a.pairs);
    const Vec cos = load_n(a.cos + d, lanes), sin = load_n(a.sin + d, lanes);
    const Vec first = load_n(out + d, lanes), second = load_n(out + a.pairs + d, lanes);
    store_n(out + d, fma(first, cos, negate(mul(second, sin))), lanes);
    store_n(out + a.pairs + d, fma(second, cos, mul(first, sin)), lanes);
  }
}
