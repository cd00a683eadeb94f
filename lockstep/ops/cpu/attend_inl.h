// SPDX-License-Identifier: Apache-2.0
// Attention of some query heads of one KV head over its blocks of 64 positions; order of operations
// as in reference/reference_attention.cpp. Included once per target, inside its namespace.

// out[q][:] = sum over j in order of p[q][j] * values[j][:], for kQueries x kVecs vectors.
template <int kQueries, int kVecs>
inline void value_tile(const float* p, const float* values, std::int64_t count, std::int64_t dim,
                       float* out) {
  Vec sum[kQueries][kVecs];
  LOCKSTEP_UNROLL
  for (int q = 0; q < kQueries; ++q) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kVecs; ++i)
      sum[q][i] = zero();
  }
  for (std::int64_t j = 0; j < count; ++j) {
    Vec v[kVecs];
    LOCKSTEP_UNROLL
    for (int i = 0; i < kVecs; ++i)
      v[i] = load(values + j * dim + i * kDotLanes);
    LOCKSTEP_UNROLL
    for (int q = 0; q < kQueries; ++q) {
      const Vec weight = set1(p[q * kChunk + j]);
      LOCKSTEP_UNROLL
      for (int i = 0; i < kVecs; ++i)
        sum[q][i] = fma(weight, v[i], sum[q][i]);
    }
  }
  LOCKSTEP_UNROLL
  for (int q = 0; q < kQueries; ++q) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kVecs; ++i)
      store(out + q * dim + i * kDotLanes, sum[q][i]);
  }
}

template <int kQueries>
inline void value_row(const float* p, const float* values, std::int64_t count, std::int64_t dim,
                      float* out) {
  std::int64_t d = 0;
  for (; d + kValueColumns * kDotLanes <= dim; d += kValueColumns * kDotLanes) {
    value_tile<kQueries, kValueColumns>(p, values + d, count, dim, out + d);
  }
  for (; d + kDotLanes <= dim; d += kDotLanes) {
    value_tile<kQueries, 1>(p, values + d, count, dim, out + d);
  }
  if (d == dim) return;
  const std::int64_t lanes = dim - d;
  for (int q = 0; q < kQueries; ++q) {
    Vec sum = zero();
    for (std::int64_t j = 0; j < count; ++j) {
      sum = fma(set1(p[q * kChunk + j]), load_n(values + j * dim + d, lanes), sum);
    }
    store_n(out + q * dim + d, sum, lanes);
  }
}

inline void add_values(const float* p, std::int64_t queries, const float* values,
                       std::int64_t count, std::int64_t dim, float* out) {
  std::int64_t q = 0;
  for (; q + 4 <= queries; q += 4) {
    value_row<4>(p + q * kChunk, values, count, dim, out + q * dim);
  }
  for (; q < queries; ++q)
    value_row<1>(p + q * kChunk, values, count, dim, out + q * dim);
}

// Running softmax of each query; see kernel_sizes.cpp for the room.
struct AttendWork {
  float* values;   // [queries, head_dim] so far
  float* part;     // [queries, head_dim] of one block
  float* weights;  // [queries, kChunk] of one block
  float* largest;  // [queries]
  float* sum;      // [queries]
};

inline void merge_block(const AttendWork& w, std::int64_t q, float block_largest, float block_sum,
                        std::int64_t dim) {
  const float largest = w.largest[q] > block_largest ? w.largest[q] : block_largest;
  const float keep = exp_f32(w.largest[q] - largest);
  const float take = exp_f32(block_largest - largest);
  w.largest[q] = largest;
  w.sum[q] = std::fma(w.sum[q], keep, block_sum * take);
  float* values = w.values + q * dim;
  const float* part = w.part + q * dim;
  for (std::int64_t d = 0; d < dim; d += kDotLanes) {
    const std::int64_t lanes = lanes_left(d, dim);
    const Vec taken = mul(load_n(part + d, lanes), set1(take));
    store_n(values + d, fma(load_n(values + d, lanes), set1(keep), taken), lanes);
  }
}

// Queries [first, last) see `count` positions of this block.
inline void attend_block(const AttendWork& w, std::int64_t first, std::int64_t last,
                         std::int64_t count, const float* values, std::int64_t dim) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  float largest[kAttendQueries], sum[kAttendQueries];
  for (std::int64_t q = first; q < last; ++q) {
    float* p = w.weights + q * kChunk;
    float top = -std::numeric_limits<float>::infinity();
    for (std::int64_t j = 0; j < count; ++j) {
      p[j] *= scale;
      top = top < p[j] ? p[j] : top;
    }
    largest[q] = top;
    sum[q] = exp_and_sum(p, count, top);
  }
  add_values(w.weights + first * kChunk, last - first, values, count, dim, w.part + first * dim);
  for (std::int64_t q = first; q < last; ++q)
    merge_block(w, q, largest[q], sum[q], dim);
}

inline void finish_query(const AttendArgs& a, const AttendWork& w, std::int64_t q, std::int64_t row,
                         std::int64_t head) {
  const AttentionShape& s = a.w->shape;
  const std::int64_t stride = 2 * (s.query_heads + s.kv_heads) * s.head_dim;
  const float* gate = a.projected + row * stride + (2 * head + 1) * s.head_dim;
  float* out = a.out + (row * s.query_heads + head) * s.head_dim;
  const Vec scale = set1(1.0f / w.sum[q]);
  for (std::int64_t d = 0; d < s.head_dim; d += kDotLanes) {
    const std::int64_t lanes = lanes_left(d, s.head_dim);
    const Vec value = mul(load_n(w.values + q * s.head_dim + d, lanes), scale);
    store_n(out + d, mul(value, sigmoid(load_n(gate + d, lanes))), lanes);
  }
}

inline void attend(const AttendArgs& a) {
  const AttentionShape& s = a.w->shape;
  const std::int64_t dim = s.head_dim;
  const std::int64_t heads = a.head_end - a.head_begin;
  const std::int64_t queries = (a.row_end - a.row_begin) * heads;
  AttendWork w;
  w.values = a.scratch;
  w.part = w.values + queries * dim;
  w.weights = w.part + queries * dim;
  w.largest = w.weights + queries * kChunk;
  w.sum = w.largest + queries;
  const float* x[kAttendQueries];
  for (std::int64_t q = 0; q < queries; ++q) {
    x[q] = a.queries + ((a.row_begin + q / heads) * s.query_heads + a.head_begin + q % heads) * dim;
    w.largest[q] = -std::numeric_limits<float>::infinity();
    w.sum[q] = 0.0f;
  }
  std::memset(w.values, 0, static_cast<std::size_t>(queries * dim) * sizeof(float));
  const std::int64_t kv_head = a.head_begin / (s.query_heads / s.kv_heads);
  const std::int64_t end = a.position + a.row_end;  // positions that the last row sees
  for (std::int64_t begin = 0; begin < end; begin += kChunk) {
    const float* keys = a.blocks[begin / kChunk] + kv_head * kChunk * dim;
    const float* values = keys + s.kv_heads * kChunk * dim;
    // Rows before `row` end before this block.
    std::int64_t row = begin - a.position;
    if (row < a.row_begin) row = a.row_begin;
    const std::int64_t skip = (row - a.row_begin) * heads;
    const std::int64_t count = end - begin < kChunk ? end - begin : kChunk;
    dot_block(keys, count, dim, x + skip, queries - skip, w.weights + skip * kChunk, kChunk);
    for (; row < a.row_end; ++row) {
      const std::int64_t seen = a.position + row + 1 - begin;
      const std::int64_t last_row = seen >= kChunk ? a.row_end : row + 1;
      attend_block(w, (row - a.row_begin) * heads, (last_row - a.row_begin) * heads,
                   seen < kChunk ? seen : kChunk, values, dim);
      row = last_row - 1;
    }
  }
  for (std::int64_t q = 0; q < queries; ++q) {
    finish_query(a, w, q, a.row_begin + q / heads, a.head_begin + q % heads);
  }
}
