// SPDX-License-Identifier: Apache-2.0
// Prepared weights: so far the artifact's own bytes, read in place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/ops/backend.h"
#include "lockstep/ops/cpu/kernels.h"
#include "lockstep/ops/cpu/team.h"

namespace lockstep::ops::cpu {

class CpuMatrix final : public Matrix {
 public:
  explicit CpuMatrix(std::span<const quant::MatrixView> parts);

  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return parts_[0].cols; }

  // out[m * out_stride + n - rows.begin] = dot(x[m], row n), for n in `rows`.
  void dot_rows(const KernelTable& kernels, Range rows, std::span<const float* const> x, float* out,
                std::int64_t out_stride, float* scratch) const;
  void expand_row(const KernelTable& kernels, std::int64_t row, float* out) const;
  // Asks for the bytes that dot_rows() of these rows will read first.
  void prefetch(std::int64_t row) const;

 private:
  std::vector<quant::MatrixView> parts_;
  std::int64_t rows_;
};

class CpuBank final : public ExpertBank {
 public:
  explicit CpuBank(std::span<const quant::MatrixView> experts);

  std::int64_t count() const { return static_cast<std::int64_t>(matrices_.size()); }
  std::int64_t rows() const { return matrices_[0].rows(); }
  std::int64_t cols() const { return matrices_[0].cols(); }
  const CpuMatrix& operator[](std::int64_t expert) const {
    return matrices_[static_cast<std::size_t>(expert)];
  }

 private:
  std::vector<CpuMatrix> matrices_;
};

}  // namespace lockstep::ops::cpu
