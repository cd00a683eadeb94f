// SPDX-License-Identifier: Apache-2.0
// Scalar decoding of stored matrices to float32, and the bit stream of codes (spec 6.1 to 6.4).
// Decoding is exact: an element is the stored number itself, or for affine formats the real number
// scale * code + bias rounded once. Nothing here fails; bytes that a loader must refuse (E8M0 byte
// 255, non-finite affine scales) decode to infinity or NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/quant/format.h"

namespace lockstep::quant {

// Codes are one byte each, below 2^bits; `bits` is 2..8. The stream of `count` codes takes
// (count * bits + 7) / 8 bytes; the unused high bits of its last byte are written as zero.
void pack_codes(const std::uint8_t* codes, std::int64_t count, int bits, std::byte* packed);
void unpack_codes(const std::byte* packed, std::int64_t count, int bits, std::uint8_t* codes);

// 4 bits: sign, 2 exponent, 1 mantissa. 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives.
float e2m1_to_f32(std::uint8_t code);
// 8 bits: sign, 4 exponent, 3 mantissa. Exponent 15 is an ordinary one: 0x7e is 448, and 0x7f,
// which no quantiser writes, is 480 as in MLX.
float e4m3_to_f32(std::uint8_t code);
// A power of two: 2^(byte - 127). Byte 255 is +infinity.
float e8m0_to_f32(std::uint8_t byte);

// Row `row` of the matrix as `cols` floats.
void dequantize_row(const MatrixView& matrix, std::int64_t row, float* out);

// Columns [begin, end) of that row; any bounds within [0, cols], also inside a group.
void dequantize_range(const MatrixView& matrix, std::int64_t row, std::int64_t begin,
                      std::int64_t end, float* out);

}  // namespace lockstep::quant
