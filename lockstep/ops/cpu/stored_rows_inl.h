// SPDX-License-Identifier: Apache-2.0
// Rows of stored matrices as a tile reads them: 16 numbers at a time, group by group. Included once
// per target, inside its namespace, after simd_*.h.

// Rows of one matrix from some row on.
struct StoredRows {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* biases;
  std::int64_t row_bytes;
  std::int64_t scale_bytes;  // of a row
  std::int64_t cols;
  std::int64_t group;  // cols if the format has none
  DType float_type;

  LOCKSTEP_INLINE void skip(std::int64_t rows) {
    codes += rows * row_bytes;
    scales += rows * scale_bytes;
    biases += rows * scale_bytes;
  }
};

inline StoredRows stored_rows(const quant::MatrixView& w, std::int64_t row) {
  StoredRows rows = {
      .codes = w.codes,
      .scales = w.scales,
      .biases = w.biases,
      .row_bytes = static_cast<std::int64_t>(quant::row_bytes(w.format, w.cols)),
      .scale_bytes = static_cast<std::int64_t>(quant::scale_row_bytes(w.format, w.cols)),
      .cols = w.cols,
      .group = w.format.quantized() ? w.format.group : w.cols,
      .float_type = w.format.float_type};
  // Absent pointers stay null under skip(), whose offset they would have is not zero.
  if (rows.biases == nullptr) rows.biases = rows.codes;
  if (rows.scales == nullptr) rows.scales = rows.codes;
  rows.skip(row);
  return rows;
}

LOCKSTEP_INLINE float scale_at(const std::byte* p, DType type, std::int64_t index) {
  if (type == DType::kBF16) {
    std::uint16_t bits;
    std::memcpy(&bits, p + 2 * index, sizeof(bits));
    return bf16_to_f32(bits);
  }
  return load_float(p, type, static_cast<std::size_t>(index));
}

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

// One group is the whole row; its last vector may be short.
template <class Reader>
struct FloatRow {
  static constexpr bool kGroups = false;
  static constexpr int kPrefetchColumns = 64 / Reader::kBytes;
  const std::byte* p;
  LOCKSTEP_INLINE FloatRow(const StoredRows& rows, std::int64_t i)
      : p(rows.codes + i * rows.row_bytes) {}
  LOCKSTEP_INLINE void begin_group(std::int64_t) {}
  LOCKSTEP_INLINE const std::byte* at(std::int64_t k) const { return p + k * Reader::kBytes; }
  LOCKSTEP_INLINE Vec read(std::int64_t k) const { return Reader::read(at(k)); }
  inline Vec read_n(std::int64_t k, std::int64_t n) const {
    std::byte padded[64] = {};
    std::memcpy(padded, at(k), static_cast<std::size_t>(n * Reader::kBytes));
    return Reader::read(padded);
  }
};

// scale * code + bias, rounded once.
template <int kBits>
struct AffineRow {
  static constexpr bool kGroups = true;
  static constexpr int kPrefetchColumns = 32;
  static constexpr bool kTable = kBits == 4 && kAffineTables;
  const std::byte *codes, *scales, *biases;
  DType type;
  Vec scale, bias;  // kTable: `bias` is the table of the 16 numbers
  LOCKSTEP_INLINE AffineRow(const StoredRows& rows, std::int64_t i)
      : codes(rows.codes + i * rows.row_bytes),
        scales(rows.scales + i * rows.scale_bytes),
        biases(rows.biases + i * rows.scale_bytes),
        type(rows.float_type),
        scale(zero()),
        bias(zero()) {}
  LOCKSTEP_INLINE void begin_group(std::int64_t g) {
    scale = set1(scale_at(scales, type, g));
    bias = set1(scale_at(biases, type, g));
    if constexpr (kTable) bias = fma(scale, load(kCodeValues), bias);
  }
  LOCKSTEP_INLINE const std::byte* at(std::int64_t k) const { return codes + k * kBits / 8; }
  LOCKSTEP_INLINE Vec read(std::int64_t k) const {
    const std::byte* p = at(k);
    if constexpr (kTable) {
      return lookup_codes4(p, bias);
    } else {
      return fma(scale, load_codes<kBits>(p), bias);
    }
  }
  static constexpr float kCodeValues[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
};

LOCKSTEP_INLINE float e8m0_scale(std::byte byte) {
  const auto bits = std::to_integer<std::uint32_t>(byte);
  return std::bit_cast<float>(bits == 0 ? 0x00400000u : bits << 23);
}
LOCKSTEP_INLINE float e4m3_scale(std::byte byte) {
  const auto bits = std::to_integer<std::uint32_t>(byte);
  const float magnitude = std::bit_cast<float>((bits & 0x7fu) << 20) * 0x1p120f;
  return (bits & 0x80u) != 0 ? -magnitude : magnitude;
}

// E2M1 codes: a table of 16 numbers per group.
template <bool kE4m3Scale>
struct Fp4Row {
  static constexpr bool kGroups = true;
  static constexpr int kPrefetchColumns = kE4m3Scale ? 16 : 32;
  const std::byte *codes, *scales;
  Vec table;
  LOCKSTEP_INLINE Fp4Row(const StoredRows& rows, std::int64_t i)
      : codes(rows.codes + i * rows.row_bytes),
        scales(rows.scales + i * rows.scale_bytes),
        table(zero()) {}
  LOCKSTEP_INLINE void begin_group(std::int64_t g) {
    const float scale = kE4m3Scale ? e4m3_scale(scales[g]) : e8m0_scale(scales[g]);
    table = mul(load(kValues), set1(scale));
  }
  LOCKSTEP_INLINE const std::byte* at(std::int64_t k) const { return codes + k / 2; }
  LOCKSTEP_INLINE Vec read(std::int64_t k) const { return lookup_codes4(at(k), table); }
  static constexpr float kValues[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                        -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
};

struct Fp8Row {
  static constexpr bool kGroups = true;
  static constexpr int kPrefetchColumns = 32;
  const std::byte *codes, *scales;
  Vec scale;
  LOCKSTEP_INLINE Fp8Row(const StoredRows& rows, std::int64_t i)
      : codes(rows.codes + i * rows.row_bytes),
        scales(rows.scales + i * rows.scale_bytes),
        scale(zero()) {}
  LOCKSTEP_INLINE void begin_group(std::int64_t g) { scale = set1(e8m0_scale(scales[g])); }
  LOCKSTEP_INLINE const std::byte* at(std::int64_t k) const { return codes + k; }
  LOCKSTEP_INLINE Vec read(std::int64_t k) const { return mul(load_e4m3(at(k)), scale); }
};
