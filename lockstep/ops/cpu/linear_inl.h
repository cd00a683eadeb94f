// SPDX-License-Identifier: Apache-2.0
// Dot products of weight rows with activation rows, and expansion of stored rows. Included once per
// target, inside its namespace, after simd_*.h.

struct ReadF32 {
  static constexpr std::int64_t kBytes = 4;
  static LOCKSTEP_INLINE Vec read(const std::byte* p) { return load_f32(p); }
};
struct ReadF16 {
  static constexpr std::int64_t kBytes = 2;
  static LOCKSTEP_INLINE Vec read(const std::byte* p) { return load_f16(p); }
};
struct ReadBF16 {
  static constexpr std::int64_t kBytes = 2;
  static LOCKSTEP_INLINE Vec read(const std::byte* p) { return load_bf16(p); }
};

template <class Reader>
LOCKSTEP_INLINE Vec read_n(const std::byte* p, std::int64_t n) {
  std::byte padded[64] = {};
  std::memcpy(padded, p, static_cast<std::size_t>(n * Reader::kBytes));
  return Reader::read(padded);
}

// Weight rows `row_bytes` apart, as a tile sees them.
struct TileArgs {
  const std::byte* w;
  std::int64_t row_bytes;
  std::int64_t cols;
  const float* const* x;
  float* out;
  std::int64_t out_stride;
};

// kRows weight rows by kCols activation rows: each stored vector is expanded once.
template <class Reader, int kRows, int kCols>
inline void tile(const TileArgs& a) {
  Vec sum[kCols][kRows];
  LOCKSTEP_UNROLL
  for (int m = 0; m < kCols; ++m) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kRows; ++i)
      sum[m][i] = zero();
  }
  const float* x[kCols];
  LOCKSTEP_UNROLL
  for (int m = 0; m < kCols; ++m)
    x[m] = a.x[m];
  std::int64_t k = 0;
  for (; k + kDotLanes <= a.cols; k += kDotLanes) {
    Vec w[kRows];
    LOCKSTEP_UNROLL
    for (int i = 0; i < kRows; ++i)
      w[i] = Reader::read(a.w + i * a.row_bytes + k * Reader::kBytes);
    LOCKSTEP_UNROLL
    for (int m = 0; m < kCols; ++m) {
      const Vec xv = load(x[m] + k);
      LOCKSTEP_UNROLL
      for (int i = 0; i < kRows; ++i)
        sum[m][i] = fma(w[i], xv, sum[m][i]);
    }
  }
  if (const std::int64_t n = a.cols - k; n > 0) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const Vec w = read_n<Reader>(a.w + i * a.row_bytes + k * Reader::kBytes, n);
      LOCKSTEP_UNROLL
      for (int m = 0; m < kCols; ++m)
        sum[m][i] = fma_n(w, load_n(x[m] + k, n), sum[m][i], n);
    }
  }
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

// All of `count` weight rows with kCols activation rows.
template <class Reader, int kCols>
inline void tile_column(TileArgs a, std::int64_t count) {
  constexpr int kRows = kTileRows[kCols];
  std::int64_t i = 0;
  for (; i + kRows <= count; i += kRows) {
    tile<Reader, kRows, kCols>(a);
    a.w += kRows * a.row_bytes;
    a.out += kRows;
  }
  if constexpr (kRows > 1) {
    for (; i < count; ++i) {
      tile<Reader, 1, kCols>(a);
      a.w += a.row_bytes;
      a.out += 1;
    }
  }
}

template <class Reader, int kCols = kTileColumnsMax>
inline void tile_columns(const TileArgs& a, std::int64_t count, std::int64_t columns) {
  if constexpr (kCols > 1) {
    if (columns < kCols) return tile_columns<Reader, kCols - 1>(a, count, columns);
  }
  tile_column<Reader, kCols>(a, count);
}

// Any number of activation rows.
template <class Reader>
inline void tile_block(TileArgs a, std::int64_t count, std::int64_t columns) {
  while (columns > kTileColumnsMax) {
    tile_column<Reader, kBlockColumns>(a, count);
    a.x += kBlockColumns;
    a.out += kBlockColumns * a.out_stride;
    columns -= kBlockColumns;
  }
  tile_columns<Reader>(a, count, columns);
}

// dot(x[m], row i) for rows of floats that lie `cols` apart.
inline void dot_block(const float* rows, std::int64_t row_count, std::int64_t cols,
                      const float* const* x, std::int64_t x_count, float* out,
                      std::int64_t out_stride) {
  tile_block<ReadF32>({.w = reinterpret_cast<const std::byte*>(rows),
                       .row_bytes = cols * 4,
                       .cols = cols,
                       .x = x,
                       .out = out,
                       .out_stride = out_stride},
                      row_count, x_count);
}

template <class Reader>
inline void expand_floats(const std::byte* codes, std::int64_t cols, float* out) {
  std::int64_t k = 0;
  for (; k + kDotLanes <= cols; k += kDotLanes) {
    store(out + k, Reader::read(codes + k * Reader::kBytes));
  }
  const std::int64_t n = cols - k;
  if (n > 0) store_n(out + k, read_n<Reader>(codes + k * Reader::kBytes, n), n);
}

inline constexpr float kE2m1Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                          -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// Where a quantised row lies.
struct StoredRow {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* biases;
};

LOCKSTEP_INLINE StoredRow stored_row(const quant::MatrixView& w, std::int64_t row) {
  const auto r = static_cast<std::size_t>(row);
  const std::size_t scales = r * quant::scale_row_bytes(w.format, w.cols);
  return {w.codes + r * quant::row_bytes(w.format, w.cols), w.scales + scales,
          w.format.has_biases() ? w.biases + scales : nullptr};
}

template <int kBits>
inline void expand_affine(const quant::MatrixView& w, std::int64_t row, float* out) {
  const StoredRow stored = stored_row(w, row);
  const std::byte* codes = stored.codes;
  const std::int64_t groups = w.cols / w.format.group;
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto index = static_cast<std::size_t>(g);
    const Vec scale = set1(load_float(stored.scales, w.format.float_type, index));
    const Vec bias = set1(load_float(stored.biases, w.format.float_type, index));
    for (int k = 0; k < w.format.group; k += kDotLanes) {
      const Vec q = kBits == 4 ? load_u4(codes) : load_u8(codes);
      store(out, fma(scale, q, bias));
      codes += kDotLanes * kBits / 8;
      out += kDotLanes;
    }
  }
}

template <bool kFourBits>
inline void expand_float_codes(const quant::MatrixView& w, std::int64_t row, float* out) {
  const StoredRow stored = stored_row(w, row);
  const std::byte* codes = stored.codes;
  const std::int64_t groups = w.cols / w.format.group;
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto byte = std::to_integer<std::uint8_t>(stored.scales[g]);
    const Vec scale = set1(w.format.kind == quant::Kind::kNvfp4 ? quant::e4m3_to_f32(byte)
                                                                : quant::e8m0_to_f32(byte));
    for (int k = 0; k < w.format.group; k += kDotLanes) {
      store(out, mul(kFourBits ? lookup_u4(codes, kE2m1Values) : load_e4m3(codes), scale));
      codes += kFourBits ? kDotLanes / 2 : kDotLanes;
      out += kDotLanes;
    }
  }
}

// Row `row` as floats: quant::dequantize_row with vectors for the formats that matter.
inline void expand_row(const quant::MatrixView& w, std::int64_t row, float* out) {
  const quant::Format& f = w.format;
  if (!f.quantized()) {
    const std::byte* codes = w.codes + static_cast<std::size_t>(row) * quant::row_bytes(f, w.cols);
    if (f.float_type == DType::kBF16) return expand_floats<ReadBF16>(codes, w.cols, out);
    if (f.float_type == DType::kF16) return expand_floats<ReadF16>(codes, w.cols, out);
    return expand_floats<ReadF32>(codes, w.cols, out);
  }
  if (f.kind == quant::Kind::kAffine && f.bits == 4) return expand_affine<4>(w, row, out);
  if (f.kind == quant::Kind::kAffine && f.bits == 8) return expand_affine<8>(w, row, out);
  if (f.kind == quant::Kind::kAffine) return quant::dequantize_row(w, row, out);
  if (f.kind == quant::Kind::kMxfp8) return expand_float_codes<false>(w, row, out);
  expand_float_codes<true>(w, row, out);
}

template <class Reader>
inline void dot_stored_floats(const DotArgs& a) {
  const auto row_bytes = static_cast<std::int64_t>(quant::row_bytes(a.w->format, a.w->cols));
  tile_columns<Reader>({.w = a.w->codes + a.row_begin * row_bytes,
                        .row_bytes = row_bytes,
                        .cols = a.w->cols,
                        .x = a.x,
                        .out = a.out,
                        .out_stride = a.out_stride},
                       a.row_end - a.row_begin, a.x_count);
}

inline void dot_rows(const DotArgs& a) {
  const quant::Format& f = a.w->format;
  const std::int64_t cols = a.w->cols;
  const bool few = a.x_count <= kTileColumnsMax;
  if (few && !f.quantized()) {
    if (f.float_type == DType::kBF16) return dot_stored_floats<ReadBF16>(a);
    if (f.float_type == DType::kF16) return dot_stored_floats<ReadF16>(a);
    return dot_stored_floats<ReadF32>(a);
  }
  const std::int64_t block = few ? 8 : expand_block_rows(cols);
  for (std::int64_t row = a.row_begin; row < a.row_end; row += block) {
    const std::int64_t count = a.row_end - row < block ? a.row_end - row : block;
    for (std::int64_t i = 0; i < count; ++i)
      expand_row(*a.w, row + i, a.scratch + i * cols);
    dot_block(a.scratch, count, cols, a.x, a.x_count, a.out + (row - a.row_begin), a.out_stride);
  }
}
