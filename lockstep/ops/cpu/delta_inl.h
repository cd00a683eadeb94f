// SPDX-License-Identifier: Apache-2.0
// One value head of a Gated DeltaNet layer over one segment; order of operations as in
// reference/reference_delta.cpp. Included once per target, inside its namespace.

// A block of at most kChunk rows, ready for the recurrence. In scratch.
struct DeltaBlock {
  float *q, *k;                            // [rows, key_dim]
  float *v, *y, *u;                        // [rows, value_dim]; u: what is added along k
  float *log_gate, *beta;                  // [rows]
  float* weight;                           // [rows] k q, or the sum of log gates
  float *next, *inverse, *factor, *scale;  // [rows] see scale_rows
  float *key_products, *query_products;    // [rows, kChunk]
  float* work;                             // [4, key_dim]
};

inline DeltaBlock delta_block(const DeltaShape& s, float* scratch) {
  DeltaBlock b;
  float* next = scratch;
  const auto take = [&](std::int64_t width) {
    float* p = next;
    next += kChunk * width;
    return p;
  };
  b.q = take(s.key_dim);
  b.k = take(s.key_dim);
  b.v = take(s.value_dim);
  b.y = take(s.value_dim);
  b.u = take(s.value_dim);
  b.log_gate = take(1);
  b.beta = take(1);
  b.weight = take(1);
  b.next = take(1);
  b.inverse = take(1);
  b.factor = take(1);
  b.scale = take(1);
  b.key_products = take(kChunk);
  b.query_products = take(kChunk);
  b.work = next;
  return b;
}

// Row t of the convolution's input, counted from the segment's first row; negative: history.
inline const float* conv_input(const DeltaHeadArgs& a, std::int64_t t) {
  const DeltaShape& s = a.w->shape;
  const std::int64_t stride = 2 * s.qk_channels() + 2 * s.v_channels() + 2 * s.value_heads;
  if (t >= 0) return a.projected + t * stride;
  return a.history + (s.conv_kernel - 1 + t) * s.conv_channels();
}

// Tap i of 16 channels, for any kernel.
inline Vec conv_tap(const float* weights, std::int64_t kernel, std::int64_t i, std::int64_t lanes) {
  float tap[kDotLanes] = {};
  for (std::int64_t c = 0; c < lanes; ++c)
    tap[c] = weights[c * kernel + i];
  return load(tap);
}

// SiLU of the convolution of channels [channel, channel + count), rows [row, row + rows).
inline void convolve(const DeltaHeadArgs& a, std::int64_t channel, std::int64_t count,
                     std::int64_t row, std::int64_t rows, float* out) {
  const std::int64_t kernel = a.w->shape.conv_kernel;
  for (std::int64_t c = 0; c < count; c += kDotLanes) {
    const std::int64_t lanes = lanes_left(c, count);
    const float* weights = a.w->conv.data() + (channel + c) * kernel;
    const bool four = kernel == 4 && lanes == kDotLanes;
    Vec taps[4];
    if (four) load_interleaved4(weights, taps);
    for (std::int64_t r = 0; r < rows; ++r) {
      Vec sum = zero();
      for (std::int64_t i = 0; i < kernel; ++i) {
        const float* input = conv_input(a, row + r + i - (kernel - 1)) + channel + c;
        const Vec tap = four ? taps[i] : conv_tap(weights, kernel, i, lanes);
        sum = fma(load_n(input, lanes), tap, sum);
      }
      store_n(out + r * count + c, silu(sum), lanes);
    }
  }
}

inline void normalise(float* x, std::int64_t dim, std::int64_t rows, float factor) {
  constexpr float kEps = 1e-6f;
  const Vec f = set1(factor);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = x + r * dim;
    const Vec scale = set1(inverse_rms(sum_of_squares(row, dim), dim, kEps));
    for (std::int64_t j = 0; j < dim; j += kDotLanes) {
      const std::int64_t lanes = lanes_left(j, dim);
      store_n(row + j, mul(mul(load_n(row + j, lanes), scale), f), lanes);
    }
  }
}

inline void read_rows(const DeltaHeadArgs& a, std::int64_t row, std::int64_t rows,
                      const DeltaBlock& b) {
  const DeltaShape& s = a.w->shape;
  const std::int64_t key_head = a.head / (s.value_heads / s.key_heads);
  const std::int64_t key = key_head * s.key_dim;
  convolve(a, key, s.key_dim, row, rows, b.q);
  convolve(a, s.qk_channels() + key, s.key_dim, row, rows, b.k);
  convolve(a, 2 * s.qk_channels() + a.head * s.value_dim, s.value_dim, row, rows, b.v);
  const auto dim = static_cast<float>(s.key_dim);
  normalise(b.q, s.key_dim, rows, 1.0f / dim);
  normalise(b.k, s.key_dim, rows, 1.0f / std::sqrt(dim));
  const auto head = static_cast<std::size_t>(a.head);
  const float rate = exp_f32(a.w->a_log[head]);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* gates = conv_input(a, row + r) + s.conv_channels() + s.v_channels();
    b.beta[r] = ops::sigmoid(gates[a.head]);
    b.log_gate[r] = -(rate * softplus(gates[s.value_heads + a.head] + a.w->dt_bias[head]));
  }
}

// One token as the recurrence takes it.
struct StepRow {
  const float* k;
  const float* q;
  const float* v;  // this and the next two from the first line on
  float* change;
  float* y;
  float next, beta, key_query, inverse, factor;
};

// change and y of kLines rows of the state, given their products with k and q.
template <int kLines>
LOCKSTEP_INLINE void finish_outputs(const StepRow& row, const float* sk, const float* sq) {
  LOCKSTEP_UNROLL
  for (int i = 0; i < kLines; ++i) {
    const float change = row.beta * (row.v[i] - row.next * sk[i]);
    row.y[i] = std::fma(change, row.key_query, row.next * sq[i]);
    row.change[i] = change * row.inverse;
  }
}

// The same from the state before its update.
template <int kLines>
inline void step_outputs(const float* s, std::int64_t dim, const StepRow& row) {
  Vec with_k[kLines], with_q[kLines];
  LOCKSTEP_UNROLL
  for (int i = 0; i < kLines; ++i)
    with_k[i] = with_q[i] = zero();
  std::int64_t j = 0;
  for (; j + kDotLanes <= dim; j += kDotLanes) {
    const Vec k = load(row.k + j), q = load(row.q + j);
    LOCKSTEP_UNROLL
    for (int i = 0; i < kLines; ++i) {
      const Vec line = load(s + i * dim + j);
      with_k[i] = fma(line, k, with_k[i]);
      with_q[i] = fma(line, q, with_q[i]);
    }
  }
  if (const std::int64_t n = dim - j; n > 0) {
    const Vec k = load_n(row.k + j, n), q = load_n(row.q + j, n);
    LOCKSTEP_UNROLL
    for (int i = 0; i < kLines; ++i) {
      const Vec line = load_n(s + i * dim + j, n);
      with_k[i] = fma_n(line, k, with_k[i], n);
      with_q[i] = fma_n(line, q, with_q[i], n);
    }
  }
  float sk[kLines], sq[kLines];
  if constexpr (kLines == 4) {
    reduce4(with_k[0], with_k[1], with_k[2], with_k[3], sk);
    reduce4(with_q[0], with_q[1], with_q[2], with_q[3], sq);
  } else {
    for (int i = 0; i < kLines; ++i) {
      sk[i] = reduce(with_k[i]);
      sq[i] = reduce(with_q[i]);
    }
  }
  finish_outputs<kLines>(row, sk, sq);
}

// factor line + change k for kLines rows of the state, from `s` to `to`. A factor of one, which is
// nearly always, needs no product.
template <int kLines, bool kScaled>
LOCKSTEP_INLINE void update_lines(const float* s, float* to, std::int64_t dim, const StepRow& row) {
  Vec changes[kLines];
  LOCKSTEP_UNROLL
  for (int i = 0; i < kLines; ++i)
    changes[i] = set1(row.change[i]);
  const Vec f = set1(row.factor);
  std::int64_t j = 0;
  for (; j + kDotLanes <= dim; j += kDotLanes) {
    const Vec key = load(row.k + j);
    LOCKSTEP_UNROLL
    for (int i = 0; i < kLines; ++i) {
      Vec line = load(s + i * dim + j);
      if constexpr (kScaled) line = mul(f, line);
      store(to + i * dim + j, fma(changes[i], key, line));
    }
  }
  if (const std::int64_t n = dim - j; n > 0) {
    const Vec key = load_n(row.k + j, n);
    LOCKSTEP_UNROLL
    for (int i = 0; i < kLines; ++i) {
      Vec line = load_n(s + i * dim + j, n);
      if constexpr (kScaled) line = mul(f, line);
      store_n(to + i * dim + j, fma(changes[i], key, line), n);
    }
  }
}

template <int kLines>
inline void step_update(const float* s, float* to, std::int64_t dim, const StepRow& row) {
  if (row.factor == 1.0f) return update_lines<kLines, false>(s, to, dim, row);
  update_lines<kLines, true>(s, to, dim, row);
}

inline StepRow step_row(const DeltaHeadArgs& a, const DeltaBlock& b, std::int64_t r,
                        std::int64_t d) {
  const DeltaShape& s = a.w->shape;
  return {.k = b.k + r * s.key_dim,
          .q = b.q + r * s.key_dim,
          .v = b.v + r * s.value_dim + d,
          .change = b.u + r * s.value_dim + d,
          .y = b.y + r * s.value_dim + d,
          .next = b.next[r],
          .beta = b.beta[r],
          .key_query = b.weight[r],
          .inverse = b.inverse[r],
          .factor = b.factor[r]};
}

// A pending row as far as an update needs it.
inline StepRow pending_row(const DeltaHeadArgs& a, std::int64_t r, std::int64_t d) {
  const DeltaShape& s = a.w->shape;
  const std::int64_t key = a.head / (s.value_heads / s.key_heads) * s.key_dim;
  StepRow row = {};
  row.k = a.pending.k + r * s.qk_channels() + key;
  row.change = a.pending.change + r * s.v_channels() + a.head * s.value_dim + d;
  row.factor = a.pending.factor[r * s.value_heads + a.head];
  return row;
}

// Rows of the state at `d`: the pending rows into the state itself, then the block's rows, into the
// state or, in a speculative segment, into `work`.
template <int kLines>
inline void step_block(const DeltaHeadArgs& a, const DeltaBlock& b, std::int64_t rows,
                       std::int64_t pending, std::int64_t d) {
  const std::int64_t dim = a.w->shape.key_dim;
  float* state = a.state + d * dim;
  for (std::int64_t r = 0; r < pending; ++r) {
    step_update<kLines>(state, state, dim, pending_row(a, r, d));
  }
  const float* from = state;
  float* to = a.segment.speculative ? b.work : state;
  for (std::int64_t r = 0; r < rows; ++r) {
    const StepRow row = step_row(a, b, r, d);
    step_outputs<kLines>(from, dim, row);
    // The state after a window's last row is not needed: it may yet be undone.
    if (a.segment.speculative && r + 1 == rows) break;
    step_update<kLines>(from, to, dim, row);
    from = to;
  }
}

// The same with the rows of the state in registers from the first pending row to the last: 2 rows
// of kVecs vectors.
template <int kVecs>
struct ResidentLines {
  Vec line[2][kVecs];

  LOCKSTEP_INLINE void load_from(const float* s) {
    LOCKSTEP_UNROLL
    for (int j = 0; j < 2 * kVecs; ++j)
      line[j / kVecs][j % kVecs] = load(s + j * kDotLanes);
  }
  LOCKSTEP_INLINE void store_to(float* s) const {
    LOCKSTEP_UNROLL
    for (int j = 0; j < 2 * kVecs; ++j)
      store(s + j * kDotLanes, line[j / kVecs][j % kVecs]);
  }
  LOCKSTEP_INLINE void update(const StepRow& row) {
    if (row.factor != 1.0f) {
      const Vec f = set1(row.factor);
      LOCKSTEP_UNROLL
      for (int j = 0; j < 2 * kVecs; ++j) {
        line[j / kVecs][j % kVecs] = mul(f, line[j / kVecs][j % kVecs]);
      }
    }
    const Vec change0 = set1(row.change[0]), change1 = set1(row.change[1]);
    LOCKSTEP_UNROLL
    for (int j = 0; j < kVecs; ++j) {
      const Vec k = load(row.k + j * kDotLanes);
      line[0][j] = fma(change0, k, line[0][j]);
      line[1][j] = fma(change1, k, line[1][j]);
    }
  }
  LOCKSTEP_INLINE void outputs(const StepRow& row) const {
    Vec k0 = zero(), k1 = zero(), q0 = zero(), q1 = zero();
    LOCKSTEP_UNROLL
    for (int j = 0; j < kVecs; ++j) {
      const Vec k = load(row.k + j * kDotLanes), q = load(row.q + j * kDotLanes);
      k0 = fma(line[0][j], k, k0);
      k1 = fma(line[1][j], k, k1);
      q0 = fma(line[0][j], q, q0);
      q1 = fma(line[1][j], q, q1);
    }
    float sums[4];
    reduce4(k0, k1, q0, q1, sums);
    finish_outputs<2>(row, sums, sums + 2);
  }
};

template <int kVecs>
inline void resident_block(const DeltaHeadArgs& a, const DeltaBlock& b, std::int64_t rows,
                           std::int64_t pending, std::int64_t d) {
  float* state = a.state + d * kVecs * kDotLanes;
  ResidentLines<kVecs> lines;
  lines.load_from(state);
  for (std::int64_t r = 0; r < pending; ++r)
    lines.update(pending_row(a, r, d));
  if (pending > 0 && a.segment.speculative) lines.store_to(state);
  for (std::int64_t r = 0; r < rows; ++r) {
    const StepRow row = step_row(a, b, r, d);
    lines.outputs(row);
    if (a.segment.speculative && r + 1 == rows) break;
    lines.update(row);
  }
  if (!a.segment.speculative) lines.store_to(state);
}

// What the scale does in each of the block's rows, from `scale` before it: `next` multiplies
// products with the state, then numbers = factor numbers + (inverse change) k^T, and `scale` is the
// new one.
inline void scale_rows(const DeltaBlock& b, std::int64_t rows, float scale) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float next = exp_f32(b.log_gate[r]) * scale;
    const bool small = next < kDeltaScaleMin;
    b.next[r] = next;
    b.inverse[r] = small ? 1.0f : 1.0f / next;
    b.factor[r] = small ? next : 1.0f;
    b.scale[r] = scale = small ? 1.0f : next;
  }
}

inline void step_rows(const DeltaHeadArgs& a, const DeltaBlock& b, std::int64_t rows,
                      std::int64_t pending) {
  const DeltaShape& s = a.w->shape;
  for (std::int64_t r = 0; r < rows; ++r) {
    b.weight[r] = dot_row(b.k + r * s.key_dim, b.q + r * s.key_dim, s.key_dim);
  }
  float& scale = a.scales[a.head];
  if (pending > 0) scale = a.pending.scale[(pending - 1) * s.value_heads + a.head];
  scale_rows(b, rows, scale);
  std::int64_t d = 0;
  for (; d + 4 <= s.value_dim; d += 4)
    step_block<4>(a, b, rows, pending, d);
  for (; d < s.value_dim; ++d)
    step_block<1>(a, b, rows, pending, d);
  if (!a.segment.speculative && rows > 0) scale = b.scale[rows - 1];
}

// The scale moves into the numbers: chunks work on the state itself.
inline void settle_scale(const DeltaHeadArgs& a) {
  const std::int64_t count = a.w->shape.value_dim * a.w->shape.key_dim;
  const Vec scale = set1(a.scales[a.head]);
  for (std::int64_t i = 0; i < count; i += kDotLanes) {
    const std::int64_t lanes = lanes_left(i, count);
    store_n(a.state + i, mul(load_n(a.state + i, lanes), scale), lanes);
  }
  a.scales[a.head] = 1.0f;
}

// sum of fma(factors[j], rows[j]) onto out, j ascending, all columns.
inline void add_rows(const float* factors, std::int64_t count, const float* rows,
                     std::int64_t width, float* out) {
  std::int64_t d = 0;
  for (; d + 4 * kDotLanes <= width; d += 4 * kDotLanes) {
    Vec sum[4];
    LOCKSTEP_UNROLL
    for (int i = 0; i < 4; ++i)
      sum[i] = load(out + d + i * kDotLanes);
    for (std::int64_t j = 0; j < count; ++j) {
      const Vec factor = set1(factors[j]);
      LOCKSTEP_UNROLL
      for (int i = 0; i < 4; ++i) {
        sum[i] = fma(factor, load(rows + j * width + d + i * kDotLanes), sum[i]);
      }
    }
    LOCKSTEP_UNROLL
    for (int i = 0; i < 4; ++i)
      store(out + d + i * kDotLanes, sum[i]);
  }
  for (; d < width; d += kDotLanes) {
    const std::int64_t lanes = lanes_left(d, width);
    Vec sum = load_n(out + d, lanes);
    for (std::int64_t j = 0; j < count; ++j) {
      sum = fma(set1(factors[j]), load_n(rows + j * width + d, lanes), sum);
    }
    store_n(out + d, sum, lanes);
  }
}

// factors[j] = e^(log_sum - log_sums[j]) for j < count.
inline void decays(float log_sum, const float* log_sums, std::int64_t count, float* factors) {
  for (std::int64_t j = 0; j < count; j += kDotLanes) {
    const std::int64_t lanes = lanes_left(j, count);
    store_n(factors + j, exp(sub(set1(log_sum), load_n(log_sums + j, lanes))), lanes);
  }
}

// Rows 0 .. n-1 of u and y, given the products with the state at the chunk's start in u and y.
inline void solve_chunk(const DeltaShape& s, const DeltaBlock& b, std::int64_t n) {
  float factors[kChunk] = {}, terms[kChunk] = {};
  for (std::int64_t i = 0; i < n; ++i) {
    float* u = b.u + i * s.value_dim;
    float* y = b.y + i * s.value_dim;
    const float* v = b.v + i * s.value_dim;
    const Vec from_start = set1(exp_f32(b.weight[i]));
    const Vec beta = set1(b.beta[i]);
    for (std::int64_t d = 0; d < s.value_dim; d += kDotLanes) {
      const std::int64_t lanes = lanes_left(d, s.value_dim);
      const Vec old = mul(from_start, load_n(u + d, lanes));
      store_n(u + d, mul(beta, sub(load_n(v + d, lanes), old)), lanes);
      store_n(y + d, mul(from_start, load_n(y + d, lanes)), lanes);
    }
    decays(b.weight[i], b.weight, i + 1, factors);
    for (std::int64_t j = 0; j < i; ++j) {
      terms[j] = -((b.beta[i] * factors[j]) * b.key_products[i * kChunk + j]);
    }
    add_rows(terms, i, b.u, s.value_dim, u);
    for (std::int64_t j = 0; j <= i; ++j)
      terms[j] = factors[j] * b.query_products[i * kChunk + j];
    add_rows(terms, i + 1, b.u, s.value_dim, y);
  }
}

inline void chunk_rows(const DeltaHeadArgs& a, const DeltaBlock& b, std::int64_t n) {
  const DeltaShape& s = a.w->shape;
  const float* keys[kChunk];
  const float* queries[kChunk];
  float log_sum = 0.0f;
  for (std::int64_t i = 0; i < n; ++i) {
    log_sum = i == 0 ? b.log_gate[0] : log_sum + b.log_gate[i];
    b.weight[i] = log_sum;
    keys[i] = b.k + i * s.key_dim;
    queries[i] = b.q + i * s.key_dim;
  }
  dot_block(a.state, s.value_dim, s.key_dim, keys, n, b.u, s.value_dim);
  dot_block(a.state, s.value_dim, s.key_dim, queries, n, b.y, s.value_dim);
  dot_block(b.k, n, s.key_dim, keys, n, b.key_products, kChunk);
  dot_block(b.k, n, s.key_dim, queries, n, b.query_products, kChunk);
  solve_chunk(s, b, n);
  float factors[kChunk] = {}, terms[kChunk] = {};
  decays(b.weight[n - 1], b.weight, n, factors);
  const Vec whole = set1(exp_f32(b.weight[n - 1]));
  for (std::int64_t d = 0; d < s.value_dim; ++d) {
    float* line = a.state + d * s.key_dim;
    for (std::int64_t j = 0; j < s.key_dim; j += kDotLanes) {
      const std::int64_t lanes = lanes_left(j, s.key_dim);
      store_n(line + j, mul(whole, load_n(line + j, lanes)), lanes);
    }
    for (std::int64_t i = 0; i < n; ++i)
      terms[i] = factors[i] * b.u[i * s.value_dim + d];
    add_rows(terms, n, b.k, s.key_dim, line);
  }
}

inline void gated_norm(const DeltaHeadArgs& a, const DeltaBlock& b, std::int64_t row,
                       std::int64_t rows) {
  const DeltaShape& s = a.w->shape;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* z = conv_input(a, row + r) + s.conv_channels() + a.head * s.value_dim;
    float* out = a.out + (row + r) * s.v_channels() + a.head * s.value_dim;
    rms_norm_row(b.y + r * s.value_dim, a.w->norm.data(), a.w->norm_eps, s.value_dim, out);
    for (std::int64_t d = 0; d < s.value_dim; d += kDotLanes) {
      const std::int64_t lanes = lanes_left(d, s.value_dim);
      store_n(out + d, mul(load_n(out + d, lanes), silu(load_n(z + d, lanes))), lanes);
    }
  }
}

// Copies channels [channel, channel + count) of the rows that the next segment may look back at.
inline void keep_history(const DeltaHeadArgs& a, std::int64_t channel, std::int64_t count) {
  const std::int64_t back = a.w->shape.conv_kernel - 1;
  const std::int64_t first = a.segment.speculative ? -back : a.segment.row_count - back;
  float* to = a.next_history + channel;
  for (std::int64_t t = first; t < a.segment.row_count; ++t) {
    std::memcpy(to, conv_input(a, t) + channel, static_cast<std::size_t>(count) * sizeof(float));
    to += a.w->shape.conv_channels();
  }
}

// Stores what the rows of a window change in the state, and the keys of the key head.
inline void keep_window(const DeltaHeadArgs& a, const DeltaBlock& b, bool keys) {
  const DeltaShape& s = a.w->shape;
  const std::int64_t key_head = a.head / (s.value_heads / s.key_heads);
  for (std::int64_t r = 0; r < a.segment.row_count; ++r) {
    if (keys) {
      std::memcpy(a.window.k + r * s.qk_channels() + key_head * s.key_dim, b.k + r * s.key_dim,
                  static_cast<std::size_t>(s.key_dim) * sizeof(float));
    }
    std::memcpy(a.window.change + r * s.v_channels() + a.head * s.value_dim, b.u + r * s.value_dim,
                static_cast<std::size_t>(s.value_dim) * sizeof(float));
    a.window.factor[r * s.value_heads + a.head] = b.factor[r];
    a.window.scale[r * s.value_heads + a.head] = b.scale[r];
  }
}

inline void delta_head(const DeltaHeadArgs& a) {
  const DeltaShape& s = a.w->shape;
  const DeltaBlock b = delta_block(s, a.scratch);
  const std::int64_t group = s.value_heads / s.key_heads;
  const bool owns_key_head = a.head % group == 0;
  const bool prefill = a.segment.cls == SegmentClass::kPrefill;
  std::int64_t pending = a.pending_count;
  if (prefill) {
    if (pending > 0) step_rows(a, b, 0, pending);
    settle_scale(a);
  }
  for (std::int64_t row = 0; row < a.segment.row_count;) {
    std::int64_t rows = prefill ? kChunk - (a.segment.position + row) % kChunk : kChunk;
    if (rows > a.segment.row_count - row) rows = a.segment.row_count - row;
    read_rows(a, row, rows, b);
    if (prefill) {
      chunk_rows(a, b, rows);
    } else {
      step_rows(a, b, rows, pending);
      pending = 0;
    }
    gated_norm(a, b, row, rows);
    row += rows;
  }
  if (a.segment.speculative) keep_window(a, b, owns_key_head);
  if (owns_key_head) {
    const std::int64_t key = a.head / group * s.key_dim;
    keep_history(a, key, s.key_dim);
    keep_history(a, s.qk_channels() + key, s.key_dim);
  }
  keep_history(a, 2 * s.qk_channels() + a.head * s.value_dim, s.value_dim);
}
