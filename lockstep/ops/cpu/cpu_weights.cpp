// SPDX-License-Identifier: Apache-2.0
#include "lockstep/ops/cpu/cpu_weights.h"

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/ops/shapes.h"

namespace lockstep::ops::cpu {

CpuMatrix::CpuMatrix(std::span<const quant::MatrixView> parts)
    : parts_(parts.begin(), parts.end()), rows_(check_parts(parts)) {}

void CpuMatrix::dot_rows(const KernelTable& kernels, Range rows, std::span<const float* const> x,
                         float* out, std::int64_t out_stride, float* scratch) const {
  std::int64_t first = 0;  // of the part, in the concatenation
  for (const quant::MatrixView& part : parts_) {
    const std::int64_t begin = std::max(rows.begin, first);
    const std::int64_t end = std::min(rows.end, first + part.rows);
    if (begin < end) {
      kernels.dot_rows({.w = &part,
                        .row_begin = begin - first,
                        .row_end = end - first,
                        .x = x.data(),
                        .x_count = static_cast<std::int64_t>(x.size()),
                        .out = out + (begin - rows.begin),
                        .out_stride = out_stride,
                        .scratch = scratch});
    }
    first += part.rows;
  }
}

void CpuMatrix::expand_row(const KernelTable& kernels, std::int64_t row, float* out) const {
  CHECK(row >= 0);
  for (const quant::MatrixView& part : parts_) {
    if (row < part.rows) return kernels.expand_row(part, row, out);
    row -= part.rows;
  }
  CHECK_MSG(false, "row beyond the matrix");
}

void CpuMatrix::prefetch(std::int64_t row) const {
  constexpr std::size_t kBytes = 4096;  // about one tile; the tile itself asks for the next
  const quant::MatrixView& part = parts_[0];
  if (row >= part.rows) return;
  const std::byte* first =
      part.codes + static_cast<std::size_t>(row) * quant::row_bytes(part.format, part.cols);
  for (std::size_t b = 0; b < kBytes; b += kCacheLineBytes)
    __builtin_prefetch(first + b, 0, 2);
}

CpuBank::CpuBank(std::span<const quant::MatrixView> experts) {
  check_bank(experts);
  for (const quant::MatrixView& expert : experts)
    matrices_.emplace_back(std::span(&expert, 1));
}

}  // namespace lockstep::ops::cpu
