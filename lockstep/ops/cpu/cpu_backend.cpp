// SPDX-License-Identifier: Apache-2.0
#include "lockstep/ops/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/check.h"
#include "lockstep/ops/cpu/cpu_state.h"

namespace lockstep::ops::cpu {
namespace {

constexpr std::int64_t kRowGrain = 8;  // output rows: a multiple of every tile's

const CpuMatrix& cast(const Matrix& w) {
  return static_cast<const CpuMatrix&>(w);
}

float* row_of(const Tensor& t, std::int64_t row) {
  return t.data + row * t.width;
}

void copy_floats(const float* from, std::int64_t count, float* to) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}

}  // namespace

std::unique_ptr<Matrix> CpuBackend::prepare(std::span<const quant::MatrixView> parts) {
  return std::make_unique<CpuMatrix>(parts);
}

std::unique_ptr<ExpertBank> CpuBackend::prepare_bank(std::span<const quant::MatrixView> experts) {
  return std::make_unique<CpuBank>(experts);
}

std::unique_ptr<SequenceState> CpuBackend::make_state(const StateShape& shape) {
  return std::make_unique<CpuState>(shape);
}

Tensor CpuBackend::scratch(std::int64_t rows, std::int64_t width) {
  CHECK(rows >= 0 && width > 0);
  return {.data = arena_.take(rows * width), .rows = rows, .width = width};
}

std::int32_t* CpuBackend::scratch_ids(std::int64_t count) {
  static_assert(sizeof(std::int32_t) == sizeof(float));
  return reinterpret_cast<std::int32_t*>(arena_.take(count));
}

void CpuBackend::reset_scratch() {
  arena_.reset();
}

void CpuBackend::download(const Tensor& from, std::span<float> to) {
  CHECK(static_cast<std::int64_t>(to.size()) == from.rows * from.width);
  copy_floats(from.data, from.rows * from.width, to.data());
}

void CpuBackend::upload(std::span<const float> from, Tensor to) {
  CHECK(static_cast<std::int64_t>(from.size()) == to.rows * to.width);
  copy_floats(from.data(), to.rows * to.width, to.data);
}

std::span<const float* const> CpuBackend::rows_of(const Tensor& x) {
  row_pointers_.clear();
  for (std::int64_t r = 0; r < x.rows; ++r)
    row_pointers_.push_back(row_of(x, r));
  return row_pointers_;
}

void CpuBackend::embed(const Matrix& table, std::span<const std::int32_t> ids, Tensor out) {
  CHECK(static_cast<std::int64_t>(ids.size()) == out.rows && table.cols() == out.width);
  for (std::int64_t r = 0; r < out.rows; ++r) {
    const std::int32_t id = ids[static_cast<std::size_t>(r)];
    CHECK(id >= 0 && id < table.rows());
    cast(table).expand_row(kernels_, id, row_of(out, r));
  }
}

void CpuBackend::rms_norm(Tensor x, std::span<const float> gamma, float eps, Tensor out) {
  CHECK(static_cast<std::int64_t>(gamma.size()) == x.width && out.width == x.width);
  CHECK(out.rows == x.rows);
  team_.run(x.rows * x.width, [&](int part, int parts) {
    const Range rows = split(x.rows, 1, part, parts);
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      kernels_.rms_norm_row(row_of(x, r), gamma.data(), eps, x.width, row_of(out, r));
    }
  });
}

void CpuBackend::linear(Tensor x, const Matrix& w, Tensor out) {
  CHECK(w.cols() == x.width && w.rows() == out.width && out.rows == x.rows);
  const std::span<const float* const> rows = rows_of(x);
  team_.run(x.rows * w.rows() * w.cols(), [&](int part, int parts) {
    const Range range = split(w.rows(), kRowGrain, part, parts);
    float* temp = team_.scratch(part, dot_scratch_floats(w.cols()));
    cast(w).dot_rows(kernels_, range, rows, out.data + range.begin, out.width, temp);
  });
}

void CpuBackend::project(Tensor x, std::span<const float> gamma, float eps, const Matrix& w,
                         Tensor out) {
  const Tensor normed = scratch(x.rows, x.width);
  rms_norm(x, gamma, eps, normed);
  linear(normed, w, out);
}

void CpuBackend::mix_out(Tensor y, const Matrix& w, Tensor x) {
  CHECK(w.cols() == y.width && w.rows() == x.width && y.rows == x.rows);
  const std::span<const float* const> rows = rows_of(y);
  const Tensor product = scratch(x.rows, x.width);
  team_.run(x.rows * w.rows() * w.cols(), [&](int part, int parts) {
    const Range range = split(w.rows(), kRowGrain, part, parts);
    float* temp = team_.scratch(part, dot_scratch_floats(w.cols()));
    cast(w).dot_rows(kernels_, range, rows, product.data + range.begin, product.width, temp);
    for (std::int64_t r = 0; r < x.rows; ++r) {
      float* to = row_of(x, r);
      const float* from = row_of(product, r);
      for (std::int64_t i = range.begin; i < range.end; ++i)
        to[i] += from[i];
    }
  });
}

void CpuBackend::fuse(Tensor e, std::span<const float> gamma_e, Tensor h,
                      std::span<const float> gamma_h, float eps, Tensor out) {
  CHECK(e.rows == h.rows && e.rows == out.rows && out.width == e.width + h.width);
  CHECK(static_cast<std::int64_t>(gamma_e.size()) == e.width);
  CHECK(static_cast<std::int64_t>(gamma_h.size()) == h.width);
  for (std::int64_t r = 0; r < out.rows; ++r) {
    kernels_.rms_norm_row(row_of(e, r), gamma_e.data(), eps, e.width, row_of(out, r));
    kernels_.rms_norm_row(row_of(h, r), gamma_h.data(), eps, h.width, row_of(out, r) + e.width);
  }
}

void CpuBackend::gather_rows(Tensor in, std::span<const std::int32_t> rows, Tensor out) {
  CHECK(static_cast<std::int64_t>(rows.size()) == out.rows && in.width == out.width);
  for (std::int64_t r = 0; r < out.rows; ++r) {
    const std::int32_t from = rows[static_cast<std::size_t>(r)];
    CHECK(from >= 0 && from < in.rows);
    copy_floats(row_of(in, from), in.width, row_of(out, r));
  }
}

}  // namespace lockstep::ops::cpu
