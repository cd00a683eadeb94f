// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/weights.h"

#include <string>
#include <string_view>

#include "lockstep/base/check.h"

namespace lockstep::spec {
namespace {

// The artifact holds every tensor of the groups that are present, so a name that is not found is
// our own mistake. What can still be wrong are values.
class Binder {
 public:
  explicit Binder(const Artifact& artifact) : artifact_(artifact) {}

  Result<Weights> bind() {
    Weights weights;
    LOCKSTEP_TRY(weights.embedding, matrix("language_model.model.embed_tokens.weight"));
    if (artifact_.head_is_embedding()) {
      weights.head = weights.embedding;
    } else {
      LOCKSTEP_TRY(weights.head, matrix("language_model.lm_head.weight"));
    }
    LOCKSTEP_TRY(weights.final_norm, vector("language_model.model.norm.weight"));
    const auto& kinds = artifact_.config().text.layer_kinds;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const std::string prefix = "language_model.model.layers." + std::to_string(i) + ".";
      LOCKSTEP_TRY(LayerWeights layer, bind_layer(prefix, kinds[i]));
      weights.layers.push_back(std::move(layer));
    }
    if (artifact_.has_mtp()) {
      LOCKSTEP_TRY(weights.mtp, bind_mtp());
    }
    return weights;
  }

 private:
  Result<const StoredTensor*> checked(const std::string& name) const {
    const StoredTensor* tensor = artifact_.find(name);
    CHECK_MSG(tensor != nullptr, name.c_str());
    LOCKSTEP_TRY_STATUS(check_values(*tensor));
    return tensor;
  }

  Result<quant::MatrixView> matrix(const std::string& name) const {
    LOCKSTEP_TRY(const StoredTensor* tensor, checked(name));
    return tensor->matrix();
  }

  Result<std::vector<quant::MatrixView>> bank(const std::string& name) const {
    LOCKSTEP_TRY(const StoredTensor* tensor, checked(name));
    std::vector<quant::MatrixView> experts;
    const std::int64_t count = tensor->expected.shape[0];
    experts.reserve(static_cast<std::size_t>(count));
    for (std::int64_t expert = 0; expert < count; ++expert) {
      experts.push_back(tensor->matrix(expert));
    }
    return experts;
  }

  // Gains become gamma.
  Result<std::vector<float>> vector(const std::string& name) const {
    LOCKSTEP_TRY(const StoredTensor* tensor, checked(name));
    std::vector<float> values = tensor->values();
    const NormDecision& norms =
        tensor->expected.group == Group::kMtp ? artifact_.mtp_norms() : artifact_.target_norms();
    if (tensor->expected.row->gain != Gain::kNo && norms.convention == NormConvention::kRaw) {
      for (float& value : values)
        value += 1.0f;
    }
    return values;
  }

  Result<LayerWeights> bind_layer(const std::string& prefix, LayerKind kind) const {
    LayerWeights layer;
    layer.kind = kind;
    LOCKSTEP_TRY(layer.input_norm, vector(prefix + "input_layernorm.weight"));
    LOCKSTEP_TRY(layer.post_norm, vector(prefix + "post_attention_layernorm.weight"));
    if (kind == LayerKind::kDelta) {
      LOCKSTEP_TRY(layer.delta, bind_delta(prefix + "linear_attn."));
    } else {
      LOCKSTEP_TRY(layer.attention, bind_attention(prefix + "self_attn."));
    }
    LOCKSTEP_TRY(layer.moe, bind_moe(prefix + "mlp."));
    return layer;
  }

  Result<DeltaMixer> bind_delta(const std::string& prefix) const {
    DeltaMixer mixer;
    LOCKSTEP_TRY(mixer.qkv, matrix(prefix + "in_proj_qkv.weight"));
    LOCKSTEP_TRY(mixer.z, matrix(prefix + "in_proj_z.weight"));
    LOCKSTEP_TRY(mixer.b, matrix(prefix + "in_proj_b.weight"));
    LOCKSTEP_TRY(mixer.a, matrix(prefix + "in_proj_a.weight"));
    LOCKSTEP_TRY(mixer.out, matrix(prefix + "out_proj.weight"));
    // Both axis orders, [C, 1, K] and [C, K, 1], have the same bytes.
    LOCKSTEP_TRY(mixer.conv, vector(prefix + "conv1d.weight"));
    LOCKSTEP_TRY(mixer.a_log, vector(prefix + "A_log"));
    LOCKSTEP_TRY(mixer.dt_bias, vector(prefix + "dt_bias"));
    LOCKSTEP_TRY(mixer.norm, vector(prefix + "norm.weight"));
    return mixer;
  }

  Result<AttentionMixer> bind_attention(const std::string& prefix) const {
    AttentionMixer mixer;
    LOCKSTEP_TRY(mixer.q, matrix(prefix + "q_proj.weight"));
    LOCKSTEP_TRY(mixer.k, matrix(prefix + "k_proj.weight"));
    LOCKSTEP_TRY(mixer.v, matrix(prefix + "v_proj.weight"));
    LOCKSTEP_TRY(mixer.o, matrix(prefix + "o_proj.weight"));
    LOCKSTEP_TRY(mixer.q_norm, vector(prefix + "q_norm.weight"));
    LOCKSTEP_TRY(mixer.k_norm, vector(prefix + "k_norm.weight"));
    return mixer;
  }

  Result<MoeWeights> bind_moe(const std::string& prefix) const {
    MoeWeights moe;
    LOCKSTEP_TRY(moe.router, matrix(prefix + "gate.weight"));
    LOCKSTEP_TRY(moe.shared_gate, matrix(prefix + "shared_expert_gate.weight"));
    LOCKSTEP_TRY(moe.shared_expert_gate, matrix(prefix + "shared_expert.gate_proj.weight"));
    LOCKSTEP_TRY(moe.shared_expert_up, matrix(prefix + "shared_expert.up_proj.weight"));
    LOCKSTEP_TRY(moe.shared_expert_down, matrix(prefix + "shared_expert.down_proj.weight"));
    LOCKSTEP_TRY(moe.gate, bank(prefix + "switch_mlp.gate_proj.weight"));
    LOCKSTEP_TRY(moe.up, bank(prefix + "switch_mlp.up_proj.weight"));
    LOCKSTEP_TRY(moe.down, bank(prefix + "switch_mlp.down_proj.weight"));
    return moe;
  }

  Result<MtpWeights> bind_mtp() const {
    MtpWeights mtp;
    LOCKSTEP_TRY(mtp.fc, matrix("mtp.fc.weight"));
    LOCKSTEP_TRY(mtp.norm_embedding, vector("mtp.pre_fc_norm_embedding.weight"));
    LOCKSTEP_TRY(mtp.norm_hidden, vector("mtp.pre_fc_norm_hidden.weight"));
    LOCKSTEP_TRY(mtp.norm, vector("mtp.norm.weight"));
    LOCKSTEP_TRY(mtp.layer, bind_layer("mtp.layers.0.", LayerKind::kAttention));
    return mtp;
  }

  const Artifact& artifact_;
};

}  // namespace

Result<Weights> bind_weights(const Artifact& artifact) {
  return Binder(artifact).bind();
}

}  // namespace lockstep::spec
