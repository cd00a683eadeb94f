// SPDX-License-Identifier: Apache-2.0
// The back end that defines what is right: plain loops over scalars, one thread.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/ops/backend.h"
#include "lockstep/ops/rotary.h"

namespace lockstep::ops::reference {

class ReferenceBackend final : public Backend {
 public:
  std::string name() const override { return "reference"; }
  std::string precision() const override { return "f32"; }
  std::string isa() const override { return "scalar"; }

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
  std::vector<std::unique_ptr<float[]>> floats_;
  std::vector<std::unique_ptr<std::int32_t[]>> ids_;
  RotaryCache rotary_;
  std::int64_t expert_union_ = 0;
};

}  // namespace lockstep::ops::reference
