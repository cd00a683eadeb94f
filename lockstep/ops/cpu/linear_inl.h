// SPDX-License-Identifier: Apache-2.0
// Dot products of weight rows with activation rows, and expansion of stored rows. Included once per
// target, inside its namespace, after stored_rows_inl.h.

struct TileArgs {
  StoredRows w;
  const float* const* x;
  float* out;
  std::int64_t out_stride;
};

// sum[m][i] += w[i] * x[m] for the 16 columns from k on.
template <class Row, int kRows, int kCols>
LOCKSTEP_INLINE void accumulate_vector(const Row (&row)[kRows], const float* const (&x)[kCols],
                                       std::int64_t k, Vec (&sum)[kCols][kRows]) {
  Vec w[kRows];
  LOCKSTEP_UNROLL
  for (int i = 0; i < kRows; ++i)
    w[i] = row[i].read(k);
  LOCKSTEP_UNROLL
  for (int m = 0; m < kCols; ++m) {
    const Vec xv = load(x[m] + k);
    LOCKSTEP_UNROLL
    for (int i = 0; i < kRows; ++i)
      sum[m][i] = fma(w[i], xv, sum[m][i]);
  }
}

// Columns [begin, end), a multiple of 16 wide. Also asks for the bytes `ahead` of these, which are
// the next tile's: rows are too short and too many for the hardware to see them coming. Into the
// second-level cache: measured a third faster than none, or than the first level, from memory.
template <class Row, int kRows, int kCols>
LOCKSTEP_INLINE void accumulate(const Row (&row)[kRows], const float* const (&x)[kCols],
                                std::int64_t begin, std::int64_t end, std::int64_t ahead,
                                Vec (&sum)[kCols][kRows]) {
  constexpr int kStep = Row::kPrefetchColumns;
  std::int64_t k = begin;
  for (; k + kStep <= end; k += kStep) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kRows; ++i)
      __builtin_prefetch(row[i].at(k) + ahead, 0, 2);
    LOCKSTEP_UNROLL
    for (int v = 0; v < kStep; v += kDotLanes) {
      accumulate_vector<Row, kRows, kCols>(row, x, k + v, sum);
    }
  }
  for (; k < end; k += kDotLanes)
    accumulate_vector<Row, kRows, kCols>(row, x, k, sum);
}

template <int kRows, int kCols>
LOCKSTEP_INLINE void store_sums(const Vec (&sum)[kCols][kRows], const TileArgs& a) {
  LOCKSTEP_UNROLL
  for (int m = 0; m < kCols; ++m) {
    float* out = a.out + m * a.out_stride;
    constexpr int kFours = kRows / 4 * 4;
    LOCKSTEP_UNROLL
    for (int i = 0; i < kFours; i += 4) {
      reduce4(sum[m][i], sum[m][i + 1], sum[m][i + 2], sum[m][i + 3], out + i);
    }
    LOCKSTEP_UNROLL
    for (int i = kFours; i < kRows; ++i)
      out[i] = reduce(sum[m][i]);
  }
}

template <class Row, std::size_t... kIndex>
LOCKSTEP_INLINE auto make_rows(const StoredRows& w, std::index_sequence<kIndex...>) {
  struct Rows {
    Row row[sizeof...(kIndex)];
  };
  return Rows{{Row(w, static_cast<std::int64_t>(kIndex))...}};
}

// kRows weight rows by kCols activation rows: each stored vector is expanded once.
template <class Row, int kRows, int kCols>
inline void tile(const TileArgs& a) {
  Vec sum[kCols][kRows];
  const float* x[kCols];
  LOCKSTEP_UNROLL
  for (int m = 0; m < kCols; ++m) {
    x[m] = a.x[m];
    LOCKSTEP_UNROLL
    for (int i = 0; i < kRows; ++i)
      sum[m][i] = zero();
  }
  auto rows = make_rows<Row>(a.w, std::make_index_sequence<static_cast<std::size_t>(kRows)>());
  const std::int64_t ahead = kRows * a.w.row_bytes;
  if constexpr (Row::kGroups) {
    std::int64_t group = 0;
    for (std::int64_t k = 0; k < a.w.cols; k += a.w.group, ++group) {
      LOCKSTEP_UNROLL
      for (int i = 0; i < kRows; ++i)
        rows.row[i].begin_group(group);
      accumulate<Row, kRows, kCols>(rows.row, x, k, k + a.w.group, ahead, sum);
    }
  } else {
    const std::int64_t whole = a.w.cols / kDotLanes * kDotLanes;
    accumulate<Row, kRows, kCols>(rows.row, x, 0, whole, ahead, sum);
    if (const std::int64_t n = a.w.cols - whole; n > 0) {
      LOCKSTEP_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const Vec w = rows.row[i].read_n(whole, n);
        LOCKSTEP_UNROLL
        for (int m = 0; m < kCols; ++m)
          sum[m][i] = fma_n(w, load_n(x[m] + whole, n), sum[m][i], n);
      }
    }
  }
  store_sums<kRows, kCols>(sum, a);
}

// All of `count` weight rows with kCols activation rows.
template <class Row, int kCols>
inline void tile_column(TileArgs a, std::int64_t count) {
  constexpr int kRows = Row::kGroups ? kFusedRows[kCols] : kTileRows[kCols];
  std::int64_t i = 0;
  for (; i + kRows <= count; i += kRows) {
    tile<Row, kRows, kCols>(a);
    a.w.skip(kRows);
    a.out += kRows;
  }
  if constexpr (kRows > 1) {
    for (; i < count; ++i) {
      tile<Row, 1, kCols>(a);
      a.w.skip(1);
      a.out += 1;
    }
  }
}

template <class Row>
inline constexpr int kColumnsMax = Row::kGroups ? kFusedColumnsMax : kTileColumnsMax;

// 1 .. kColumnsMax activation rows.
template <class Row, int kCols = kColumnsMax<Row>>
inline void tile_columns(const TileArgs& a, std::int64_t count, std::int64_t columns) {
  if constexpr (kCols > 1) {
    if (columns < kCols) return tile_columns<Row, kCols - 1>(a, count, columns);
  }
  tile_column<Row, kCols>(a, count);
}

using F32Row = FloatRow<ReadF32>;

// dot(x[m], row i) for rows of floats that lie `cols` apart, any number of activation rows.
inline void dot_block(const float* rows, std::int64_t row_count, std::int64_t cols,
                      const float* const* x, std::int64_t x_count, float* out,
                      std::int64_t out_stride) {
  const auto* bytes = reinterpret_cast<const std::byte*>(rows);
  TileArgs a = {.w = {.codes = bytes,
                      .scales = bytes,
                      .biases = bytes,
                      .row_bytes = cols * 4,
                      .scale_bytes = 0,
                      .cols = cols,
                      .group = cols,
                      .float_type = DType::kF32},
                .x = x,
                .out = out,
                .out_stride = out_stride};
  while (x_count > kTileColumnsMax) {
    tile_column<F32Row, kBlockColumns>(a, row_count);
    a.x += kBlockColumns;
    a.out += kBlockColumns * out_stride;
    x_count -= kBlockColumns;
  }
  tile_columns<F32Row>(a, row_count, x_count);
}

// `count` rows as floats, one after another.
template <class Row>
inline void expand_rows(StoredRows w, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    Row row(w, 0);
    if constexpr (Row::kGroups) {
      std::int64_t group = 0;
      for (std::int64_t begin = 0; begin < w.cols; begin += w.group, ++group) {
        row.begin_group(group);
        for (std::int64_t k = begin; k < begin + w.group; k += kDotLanes)
          store(out + k, row.read(k));
      }
    } else {
      std::int64_t k = 0;
      for (; k + kDotLanes <= w.cols; k += kDotLanes)
        store(out + k, row.read(k));
      if (k < w.cols) store_n(out + k, row.read_n(k, w.cols - k), w.cols - k);
    }
    w.skip(1);
    out += w.cols;
  }
}

// Few activation rows: expansion within the tile. Many: blocks of rows expanded to memory.
template <class Row>
inline void dot_stored(const DotArgs& a) {
  const std::int64_t cols = a.w->cols;
  StoredRows w = stored_rows(*a.w, a.row_begin);
  const std::int64_t rows = a.row_end - a.row_begin;
  if (a.x_count <= kColumnsMax<Row>) {
    return tile_columns<Row>({.w = w, .x = a.x, .out = a.out, .out_stride = a.out_stride}, rows,
                             a.x_count);
  }
  const std::int64_t block = a.x_count <= kTileColumnsMax ? 8 : expand_block_rows(cols);
  for (std::int64_t row = 0; row < rows; row += block) {
    const std::int64_t count = rows - row < block ? rows - row : block;
    expand_rows<Row>(w, count, a.scratch);
    dot_block(a.scratch, count, cols, a.x, a.x_count, a.out + row, a.out_stride);
    w.skip(count);
  }
}

// Calls visit.operator()<Row>() with the row type of the format.
template <class Visit>
inline void with_row_type(const quant::Format& f, const Visit& visit) {
  switch (f.kind) {
    case quant::Kind::kFloat:
      if (f.float_type == DType::kBF16) return visit.template operator()<FloatRow<ReadBF16>>();
      if (f.float_type == DType::kF16) return visit.template operator()<FloatRow<ReadF16>>();
      return visit.template operator()<F32Row>();
    case quant::Kind::kAffine:
      if (f.bits == 2) return visit.template operator()<AffineRow<2>>();
      if (f.bits == 3) return visit.template operator()<AffineRow<3>>();
      if (f.bits == 4) return visit.template operator()<AffineRow<4>>();
      if (f.bits == 5) return visit.template operator()<AffineRow<5>>();
      if (f.bits == 6) return visit.template operator()<AffineRow<6>>();
      return visit.template operator()<AffineRow<8>>();
    case quant::Kind::kMxfp4:
      return visit.template operator()<Fp4Row<false>>();
    case quant::Kind::kNvfp4:
      return visit.template operator()<Fp4Row<true>>();
    case quant::Kind::kMxfp8:
      return visit.template operator()<Fp8Row>();
  }
}

struct DotVisit {
  const DotArgs& args;
  template <class Row>
  void operator()() const {
    dot_stored<Row>(args);
  }
};
inline void dot_rows(const DotArgs& a) {
  with_row_type(a.w->format, DotVisit{a});
}

struct ExpandVisit {
  const quant::MatrixView& w;
  std::int64_t row;
  float* out;
  template <class Row>
  void operator()() const {
    expand_rows<Row>(stored_rows(w, row), 1, out);
  }
};
// Row `row` as floats: quant::dequantize_row, in vectors.
inline void expand_row(const quant::MatrixView& w, std::int64_t row, float* out) {
  with_row_type(w.format, ExpandVisit{w, row, out});
}
