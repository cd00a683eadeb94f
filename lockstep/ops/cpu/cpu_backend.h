// SPDX-License-Identifier: Apache-2.0
// The CPU back end: the kernels of one instruction set, a team of threads, and scratch memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/ops/backend.h"
#include "lockstep/ops/cpu/arena.h"
#include "lockstep/ops/cpu/cpu_weights.h"
#include "lockstep/ops/cpu/kernels.h"
#include "lockstep/ops/cpu/team.h"
#include "lockstep/ops/rotary.h"

namespace lockstep::ops::cpu {

// The (row, slot) pairs of a route() call, sorted by expert. The shared expert is not among them.
struct ExpertPairs {
  struct Pair {
    std::int32_t row = 0, slot = 0;
  };
  std::vector<std::int32_t> experts;  // those selected, ascending
  std::vector<std::int32_t> begin;    // per selected expert, and one past: its first pair
  std::vector<Pair> pairs;
  // [rows, slots + 1]: where the pair stands in `pairs`, and its weight. The last of a row is the
  // shared expert's: it stands at pairs.size() + row.
  std::vector<std::int32_t> places;
  std::vector<float> weights;
};

// Queries of one segment that one call of the attention kernel takes.
struct AttendUnit {
  const Segment* segment = nullptr;
  std::int64_t row_begin = 0, row_end = 0;
  std::int64_t head_begin = 0, head_end = 0;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(const KernelTable& kernels, int threads) : kernels_(kernels), team_(threads) {}

  std::string name() const override { return "cpu"; }
  std::string precision() const override { return "f32"; }
  std::string isa() const override { return kernels_.isa; }

  std::unique_ptr<Matrix> prepare(std::span<const quant::MatrixView> parts) override;
  std::unique_ptr<ExpertBank> prepare_bank(std::span<const quant::MatrixView> experts) override;
  std::unique_ptr<SequenceState> make_state(const StateShape& shape) override;
  Tensor scratch(std::int64_t rows, std::int64_t width) override;
  std::int32_t* scratch_ids(std::int64_t count) override;
  void reset_scratch() override;
  void download(const Tensor& from, std::span<float> to) override;
  void upload(std::span<const float> from, Tensor to) override;

  void embed(const Matrix& table, std::span<const std::int32_t> ids, Tensor out) override;
  void rms_norm(Tensor x, std::span<const float> gamma, float eps, Tensor out) override;
  void linear(Tensor x, const Matrix& w, Tensor out) override;
  void project(Tensor x, std::span<const float> gamma, float eps, const Matrix& w,
               Tensor out) override;
  void delta(const Batch& batch, int layer, const DeltaWeights& w, Tensor projected,
             Tensor out) override;
  void attend(const Batch& batch, int layer, const AttentionWeights& w, Tensor projected,
              Tensor out) override;
  void append_kv(const Batch& batch, int layer, const AttentionWeights& w,
                 Tensor projected) override;
  void mix_out(Tensor y, const Matrix& w, Tensor x) override;
  RouterOutput route(Tensor x, std::span<const float> gamma, float eps, const Matrix& w,
                     int top_k) override;
  Tensor experts_in(const RouterOutput& routed, const ExpertBank& gate, const ExpertBank& up,
                    const Matrix& shared_gate, const Matrix& shared_up) override;
  void experts_out(const RouterOutput& routed, Tensor activations, const ExpertBank& down,
                   const Matrix& shared_down, Tensor x) override;
  void fuse(Tensor e, std::span<const float> gamma_e, Tensor h, std::span<const float> gamma_h,
            float eps, Tensor out) override;
  void gather_rows(Tensor in, std::span<const std::int32_t> rows, Tensor out) override;
  std::int64_t expert_union() const override { return expert_union_; }

 private:
  // Pointers to the rows of x; valid until the next call.
  std::span<const float* const> rows_of(const Tensor& x);
  void sort_pairs(const RouterOutput& routed, std::int64_t expert_count);
  // Products of all pairs, then of the shared expert, with some columns: [pairs + rows, columns].
  void down_columns(const CpuBank& down, const CpuMatrix& shared, Range columns, float* products,
                    float* scratch) const;
  // Keys, normalised and turned, and values go to the caches; queries to `queries`.
  void append_rows(const Batch& batch, int layer, const AttentionWeights& w, const float* kv,
                   std::int64_t row_stride);
  void list_attend_units(const Batch& batch, const AttentionShape& shape);
  void turn_queries(const Batch& batch, const AttentionWeights& w, const Tensor& projected,
                    const Tensor& queries);

  const KernelTable& kernels_;
  Team team_;
  Arena arena_;
  RotaryCache rotary_;
  std::vector<const float*> row_pointers_;
  std::vector<const float*> pair_pointers_;
  std::vector<std::int32_t> counts_;
  ExpertPairs pairs_;
  std::vector<DeltaHeadArgs> delta_args_;
  std::vector<AttendUnit> attend_units_;
  std::int64_t expert_union_ = 0;
};

}  // namespace lockstep::ops::cpu
