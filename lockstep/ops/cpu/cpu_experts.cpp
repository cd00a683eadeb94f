// SPDX-License-Identifier: Apache-2.0
// route, experts_in and experts_out. Threads split the output columns of every expert, so the load
// is even for any selection; an expert that several rows selected is read once for all of them.
#include <algorithm>
#include <span>

#include "lockstep/base/check.h"
#include "lockstep/ops/cpu/cpu_backend.h"
#include "lockstep/ops/math.h"

namespace lockstep::ops::cpu {
namespace {

constexpr std::int64_t kColumnGrain = 8;
constexpr std::int64_t kPairBlock = 64;    // pairs of one expert that are computed at a time
constexpr std::int64_t kColumnBlock = 32;  // columns of all pairs, when the pairs are many

const CpuMatrix& cast(const Matrix& w) {
  return static_cast<const CpuMatrix&>(w);
}

const CpuBank& cast(const ExpertBank& bank) {
  return static_cast<const CpuBank&>(bank);
}

float* row_of(const Tensor& t, std::int64_t row) {
  return t.data + row * t.width;
}

// The `top_k` largest of p, descending, the lower index first among equals. A NaN stays behind
// whatever came before it.
void select_top(const float* p, std::int64_t count, int top_k, std::int32_t* ids, float* values) {
  int size = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (size == top_k && !(p[i] > values[size - 1])) continue;
    int at = size < top_k ? size++ : size - 1;
    for (; at > 0 && p[i] > values[at - 1]; --at) {
      values[at] = values[at - 1];
      ids[at] = ids[at - 1];
    }
    values[at] = p[i];
    ids[at] = static_cast<std::int32_t>(i);
  }
}

// Gate and up of one expert for some rows, columns [columns.begin, columns.end).
struct GatedJob {
  const CpuMatrix& gate;
  const CpuMatrix& up;
  Range columns;
  std::span<const float* const> x;
  const CpuMatrix* next = nullptr;  // the gate that is read after this job
};

// to(i) is where row i's activations of this expert start.
template <class To>
void gated_columns(const KernelTable& kernels, const GatedJob& job, float* scratch, const To& to) {
  const std::int64_t width = job.columns.size();
  float* gate = scratch;
  float* up = gate + kPairBlock * width;
  float* dot_scratch = up + kPairBlock * width;
  for (std::size_t first = 0; first < job.x.size(); first += kPairBlock) {
    const std::size_t count = std::min<std::size_t>(kPairBlock, job.x.size() - first);
    const std::span<const float* const> x = job.x.subspan(first, count);
    job.up.prefetch(job.columns.begin);
    job.gate.dot_rows(kernels, job.columns, x, gate, width, dot_scratch);
    if (job.next != nullptr) job.next->prefetch(job.columns.begin);
    job.up.dot_rows(kernels, job.columns, x, up, width, dot_scratch);
    for (std::size_t i = 0; i < count; ++i) {
      const auto offset = static_cast<std::int64_t>(i) * width;
      kernels.gated_product(gate + offset, up + offset, width, to(first + i) + job.columns.begin);
    }
  }
}

}  // namespace

RouterOutput CpuBackend::route(Tensor x, std::span<const float> gamma, float eps, const Matrix& w,
                               int top_k) {
  const std::int64_t experts = w.rows() - 1;
  CHECK(top_k > 0 && top_k <= experts);
  RouterOutput out = {.normed = scratch(x.rows, x.width),
                      .experts = scratch_ids(x.rows * top_k),
                      .weights = scratch(x.rows, top_k),
                      .shared_gate = scratch(x.rows, 1)};
  rms_norm(x, gamma, eps, out.normed);
  const Tensor logits = scratch(x.rows, w.rows());
  linear(out.normed, w, logits);
  team_.run(8 * x.rows * experts, [&](int part, int parts) {
    const Range rows = split(x.rows, 1, part, parts);
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      float* p = row_of(logits, r);
      float* weights = row_of(out.weights, r);
      kernels_.softmax(p, experts);
      select_top(p, experts, top_k, out.experts + r * top_k, weights);
      float sum = 0.0f;
      for (int i = 0; i < top_k; ++i)
        sum += weights[i];
      for (int i = 0; i < top_k; ++i)
        weights[i] /= sum;
      row_of(out.shared_gate, r)[0] = sigmoid(p[experts]);
    }
  });
  sort_pairs(out, experts);
  return out;
}

void CpuBackend::sort_pairs(const RouterOutput& routed, std::int64_t expert_count) {
  const std::int64_t slots = routed.weights.width;
  const std::int64_t count = routed.weights.rows * slots;
  counts_.assign(static_cast<std::size_t>(expert_count), 0);
  for (std::int64_t i = 0; i < count; ++i)
    ++counts_[static_cast<std::size_t>(routed.experts[i])];
  pairs_.experts.clear();
  pairs_.begin.clear();
  std::int32_t next = 0;
  for (std::size_t e = 0; e < counts_.size(); ++e) {
    if (counts_[e] == 0) continue;
    pairs_.experts.push_back(static_cast<std::int32_t>(e));
    pairs_.begin.push_back(next);
    next += std::exchange(counts_[e], next);
  }
  pairs_.begin.push_back(next);
  pairs_.pairs.resize(static_cast<std::size_t>(count));
  pairs_.places.clear();
  pairs_.weights.clear();
  for (std::int64_t row = 0; row < routed.weights.rows; ++row) {
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      const std::int32_t expert = routed.experts[row * slots + slot];
      const std::int32_t at = counts_[static_cast<std::size_t>(expert)]++;
      pairs_.pairs[static_cast<std::size_t>(at)] = {static_cast<std::int32_t>(row),
                                                    static_cast<std::int32_t>(slot)};
      pairs_.places.push_back(at);
      pairs_.weights.push_back(row_of(routed.weights, row)[slot]);
    }
    pairs_.places.push_back(static_cast<std::int32_t>(count + row));
    pairs_.weights.push_back(row_of(routed.shared_gate, row)[0]);
  }
  expert_union_ = static_cast<std::int64_t>(pairs_.experts.size());
}

Tensor CpuBackend::experts_in(const RouterOutput& routed, const ExpertBank& gate,
                              const ExpertBank& up, const Matrix& shared_gate,
                              const Matrix& shared_up) {
  const std::int64_t slots = routed.weights.width;
  const std::int64_t rows = routed.normed.rows;
  const std::int64_t hidden = cast(gate).rows();
  const std::int64_t shared_hidden = shared_gate.rows();
  CHECK(cast(up).rows() == hidden && shared_up.rows() == shared_hidden);
  CHECK(cast(gate).cols() == routed.normed.width && shared_gate.cols() == routed.normed.width);
  sort_pairs(routed, cast(gate).count());
  const Tensor out = scratch(rows, slots * hidden + shared_hidden);
  pair_pointers_.clear();
  for (const ExpertPairs::Pair& pair : pairs_.pairs) {
    pair_pointers_.push_back(row_of(routed.normed, pair.row));
  }
  const std::span<const float* const> x = rows_of(routed.normed);
  const std::int64_t floats =
      2 * kPairBlock * std::max(hidden, shared_hidden) + dot_scratch_floats(routed.normed.width);
  team_.run(2 * rows * out.width * routed.normed.width, [&](int part, int parts) {
    float* temp = team_.scratch(part, floats);
    const Range columns = split(hidden, kColumnGrain, part, parts);
    for (std::size_t i = 0; i < pairs_.experts.size(); ++i) {
      const auto begin = static_cast<std::size_t>(pairs_.begin[i]);
      const auto count = static_cast<std::size_t>(pairs_.begin[i + 1]) - begin;
      const GatedJob job = {.gate = cast(gate)[pairs_.experts[i]],
                            .up = cast(up)[pairs_.experts[i]],
                            .columns = columns,
                            .x = std::span(pair_pointers_).subspan(begin, count),
                            .next = i + 1 < pairs_.experts.size()
                                        ? &cast(gate)[pairs_.experts[i + 1]]
                                        : &cast(shared_gate)};
      gated_columns(kernels_, job, temp, [&](std::size_t k) {
        const ExpertPairs::Pair pair = pairs_.pairs[begin + k];
        return row_of(out, pair.row) + pair.slot * hidden;
      });
    }
    const GatedJob shared = {.gate = cast(shared_gate),
                             .up = cast(shared_up),
                             .columns = split(shared_hidden, kColumnGrain, part, parts),
                             .x = x,
                             .next = nullptr};
    gated_columns(kernels_, shared, temp, [&](std::size_t k) {
      return row_of(out, static_cast<std::int64_t>(k)) + slots * hidden;
    });
  });
  return out;
}

void CpuBackend::experts_out(const RouterOutput& routed, Tensor activations, const ExpertBank& down,
                             const Matrix& shared_down, Tensor x) {
  const std::int64_t slots = routed.weights.width;
  const std::int64_t hidden = cast(down).cols();
  CHECK(activations.width == slots * hidden + shared_down.cols() && activations.rows == x.rows);
  CHECK(cast(down).rows() == x.width && shared_down.rows() == x.width);
  sort_pairs(routed, cast(down).count());
  pair_pointers_.clear();
  for (const ExpertPairs::Pair& pair : pairs_.pairs) {
    pair_pointers_.push_back(row_of(activations, pair.row) + pair.slot * hidden);
  }
  row_pointers_.clear();
  for (std::int64_t r = 0; r < x.rows; ++r) {
    row_pointers_.push_back(row_of(activations, r) + slots * hidden);
  }
  const auto pair_count = static_cast<std::int64_t>(pairs_.pairs.size());
  const std::int64_t block = pair_count > kPairBlock ? kColumnBlock : x.width;
  const std::int64_t product_floats = (pair_count + x.rows) * block;
  const std::int64_t floats =
      product_floats + dot_scratch_floats(std::max(hidden, shared_down.cols()));
  team_.run(x.rows * x.width * activations.width, [&](int part, int parts) {
    float* products = team_.scratch(part, floats);
    const Range columns = split(x.width, kColumnGrain, part, parts);
    for (std::int64_t begin = columns.begin; begin < columns.end; begin += block) {
      const Range range = {begin, std::min(columns.end, begin + block)};
      down_columns(cast(down), cast(shared_down), range, products, products + product_floats);
      for (std::int64_t r = 0; r < x.rows; ++r) {
        kernels_.add_weighted({.products = products,
                               .stride = range.size(),
                               .places = pairs_.places.data() + r * (slots + 1),
                               .weights = pairs_.weights.data() + r * (slots + 1),
                               .count = slots + 1},
                              range.size(), row_of(x, r) + range.begin);
      }
    }
  });
}

void CpuBackend::down_columns(const CpuBank& down, const CpuMatrix& shared, Range columns,
                              float* products, float* scratch) const {
  for (std::size_t i = 0; i < pairs_.experts.size(); ++i) {
    const auto begin = static_cast<std::size_t>(pairs_.begin[i]);
    const auto count = static_cast<std::size_t>(pairs_.begin[i + 1]) - begin;
    const bool last = i + 1 == pairs_.experts.size();
    (last ? shared : down[pairs_.experts[i + 1]]).prefetch(columns.begin);
    down[pairs_.experts[i]].dot_rows(
        kernels_, columns, std::span(pair_pointers_).subspan(begin, count),
        products + pairs_.begin[i] * columns.size(), columns.size(), scratch);
  }
  const auto pairs = static_cast<std::int64_t>(pairs_.pairs.size());
  shared.dot_rows(kernels_, columns, row_pointers_, products + pairs * columns.size(),
                  columns.size(), scratch);
}

}  // namespace lockstep::ops::cpu
