// SPDX-License-Identifier: Apache-2.0
// Quantisers, bit-exact with MLX (spec section 6). Its two back ends disagree in rounding, ties and
// the range of negative groups; artifacts in circulation come from Metal, so that is the default.
//
// Errors: kFormat for an element that is NaN or infinite; kLimit for values whose scale, bias or
// stored element is beyond the format; kInconsistent for a row that the group does not divide. The
// caller adds the tensor's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/result.h"
#include "lockstep/quant/format.h"

namespace lockstep::quant {

enum class Flavour : std::uint8_t { kMetal, kCpu };

// How mxfp4 and mxfp8 pick the power of two near max|w| / (largest code value).
enum class MxScale : std::uint8_t {
  kUp,       // the smallest one that is not below: nothing saturates. MLX since 0.32
  kNearest,  // nearest in log2: the largest elements may saturate. MLX before
};

struct QuantizeOptions {
  Flavour flavour = Flavour::kMetal;
  MxScale mx_scale = MxScale::kUp;
  // Type the values were stored in: F32, F16 or BF16. The CPU flavour computes the scales of mxfp4
  // and mxfp8 in it; nothing else depends on it.
  DType source_type = DType::kBF16;
};

// Where a row goes: row_bytes() of codes, scale_row_bytes() each of scales and biases. Scales are
// unused for kFloat, biases unless has_biases().
struct QuantizedRow {
  std::byte* codes = nullptr;
  std::byte* scales = nullptr;
  std::byte* biases = nullptr;
};

// One row of `cols` floats. Affine scales and biases are rounded to format.float_type; a kFloat
// format rounds each element. After an error the row's bytes are unspecified.
Status quantize_row(const float* values, std::int64_t cols, const Format& format,
                    const QuantizeOptions& options, const QuantizedRow& row);

// A matrix that owns its bytes.
struct QuantizedMatrix {
  Format format;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  std::vector<std::byte> biases;

  // Valid while this matrix lives and its vectors are not resized.
  MatrixView view() const;
};

// `values` is [rows, cols], row-major. Error::where is the row.
Result<QuantizedMatrix> quantize_matrix(const float* values, std::int64_t rows, std::int64_t cols,
                                        const Format& format, const QuantizeOptions& options);

// Nearest code, ties to the even code; saturates at 6 and 448. The sign of zero is kept.
std::uint8_t f32_to_e2m1(float value);
std::uint8_t f32_to_e4m3(float value);

}  // namespace lockstep::quant
