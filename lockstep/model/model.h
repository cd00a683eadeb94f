// SPDX-License-Identifier: Apache-2.0
// The forward pass of the family, written once over the back end's verbs (spec sections 3 and 5).
//
// A decoder layer is six stages: project, delta or attend, mix_out, route, experts_in, experts_out.
// The MTP head is a fusion matrix and one attention layer of the same kind, with its own KV
// entries: entry p belongs to the pair (hidden state of token p, token p + 1) and turns by position
// p.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/ops/backend.h"
#include "lockstep/spec/config.h"
#include "lockstep/spec/weights.h"

namespace lockstep::model {

// Called with "embed", "layer.N.mixer" (before the residual sum), "layer.N", "final_norm". For
// tests and inspection; the tensor is valid during the call.
using Trace = std::function<void(const std::string& name, const ops::Tensor& value)>;

// Result of the target's pass. Both live until Backend::reset_scratch().
struct Hidden {
  ops::Tensor normed;       // [rows, hidden] after the final norm: input of the head matrix
  ops::Tensor head_input;   // [rows, hidden] what the MTP head takes: `normed`, or the residual
                            // stream when the artifact says mtp_hidden_state_mode pre_norm
  double expert_union = 0;  // distinct experts that the rows selected, mean over the layers
};

class Model {
 public:
  // `weights` is consumed; the bytes its views point to must outlive the model, as must `backend`.
  static std::unique_ptr<Model> build(const spec::ModelConfig& config, spec::Weights weights,
                                      ops::Backend& backend);
  ~Model();

  const spec::TextConfig& config() const { return config_; }
  ops::Backend& backend() const { return backend_; }
  bool has_mtp() const { return mtp_ != nullptr; }

  std::unique_ptr<ops::SequenceState> make_state() const;
  // Index of the head's layer for SequenceState::kv_length and truncate_kv.
  int mtp_layer() const { return target_attention_layers_; }

  // Runs `ids` (one per row of the batch) through the target and appends to the states.
  Hidden forward(const ops::Batch& batch, std::span<const std::int32_t> ids,
                 const Trace& trace = nullptr) const;
  // [rows, vocab_rows] of normed hidden rows. Rows of padding tokens are included; callers mask.
  ops::Tensor logits(const ops::Tensor& normed) const;

  // Appends head entries for the pairs (hidden[r], next_ids[r]) without computing their output.
  // Segment positions are head entries (Segment::position = kv_length(mtp_layer())).
  void mtp_prime(const ops::Batch& batch, std::span<const std::int32_t> next_ids,
                 const ops::Tensor& hidden) const;
  // The same, with output: [rows, hidden] after mtp.norm. Feeds both logits() and the next link of
  // a chain.
  ops::Tensor mtp_forward(const ops::Batch& batch, std::span<const std::int32_t> next_ids,
                          const ops::Tensor& hidden) const;

 private:
  struct Layer;
  struct Mtp;

  Model(const spec::TextConfig& config, bool pre_norm, ops::Backend& backend);
  std::unique_ptr<Layer> build_layer(spec::LayerWeights weights, int state_layer) const;
  // Return the number of distinct experts the layer used.
  std::int64_t run_layer(const Layer& layer, const ops::Batch& batch, ops::Tensor x,
                         const std::string& name, const Trace& trace) const;
  ops::Tensor run_mixer(const Layer& layer, const ops::Batch& batch, const ops::Tensor& x) const;
  std::int64_t run_experts(const Layer& layer, ops::Tensor x) const;
  ops::Tensor fuse(std::span<const std::int32_t> next_ids, const ops::Tensor& hidden) const;

  spec::TextConfig config_;
  bool mtp_takes_pre_norm_ = false;
  ops::Backend& backend_;
  std::unique_ptr<ops::Matrix> embedding_;
  std::unique_ptr<ops::Matrix> head_;
  std::vector<float> final_norm_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::unique_ptr<Mtp> mtp_;
  int target_attention_layers_ = 0;
};

// Rotary tables shared by all attention layers (spec 3.2, step 3).
std::vector<float> rotary_inv_freq(const spec::TextConfig& config);
std::vector<std::uint8_t> rotary_axes(const spec::TextConfig& config);

// A batch builder for text: every segment's coordinates are its positions on all three axes.
void append_text_segment(ops::Batch& batch, ops::Segment segment);

}  // namespace lockstep::model
