// SPDX-License-Identifier: Apache-2.0
// Number formats of stored matrices (spec section 6). A matrix is [rows, cols], row-major; formats
// quantise along the last axis in contiguous groups. Codes of a row form one little-endian bit
// stream, element 0 in the lowest bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/result.h"

namespace lockstep::quant {

enum class Kind : std::uint8_t {
  kFloat,   // F32, F16 or BF16 as stored
  kAffine,  // w = scale * q + bias; bits 2,3,4,5,6,8; group 32, 64, 128
  kMxfp4,   // E2M1 codes, E8M0 scale per 32
  kMxfp8,   // E4M3 codes, E8M0 scale per 32
  kNvfp4,   // E2M1 codes, E4M3 scale per 16
};

struct Format {
  Kind kind = Kind::kFloat;
  DType float_type = DType::kBF16;  // kFloat: element type. kAffine: type of scales and biases
  int bits = 16;                    // bits of one code
  int group = 0;                    // elements that share a scale; 0 for kFloat

  bool operator==(const Format&) const = default;
  bool quantized() const { return kind != Kind::kFloat; }
  bool has_biases() const { return kind == Kind::kAffine; }
  // "bf16", "f32", "affine4-g64", "mxfp4", ...
  std::string name() const;
};

Format float_format(DType type);
Format affine(int bits, int group, DType scale_type = DType::kBF16);
Format mxfp4();
Format mxfp8();
Format nvfp4();
std::optional<Format> format_from_name(const std::string& name);

// Bytes of one row's codes, and of one row's scales (= biases), for `cols` elements.
std::size_t row_bytes(const Format& format, std::int64_t cols);
std::size_t scale_row_bytes(const Format& format, std::int64_t cols);

// A matrix in somebody else's memory (a mapped file, mostly), at any alignment. Rows of codes
// follow each other at row_bytes(), rows of scales and biases at scale_row_bytes().
struct MatrixView {
  Format format;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;  // null for kFloat
  const std::byte* biases = nullptr;  // kAffine only

  // Rows [begin, begin + count) of the same matrix.
  MatrixView slice_rows(std::int64_t begin, std::int64_t count) const;
};

}  // namespace lockstep::quant
