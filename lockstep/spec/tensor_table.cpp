// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/tensor_table.h"

#include "lockstep/base/check.h"

namespace lockstep::spec {
namespace {

// clang-format off
constexpr TensorRow kTable[] = {
    // Language model.
    {.name = "embed_tokens.weight", .scope = Scope::kModel, .role = Role::kEmbedding,
     .shape = {Dim::kVocab, Dim::kHidden}, .bits_min = 4},
    {.name = "norm.weight", .scope = Scope::kModel, .role = Role::kNorm,
     .shape = {Dim::kHidden}, .transform = Transform::kAddOne, .gain = Gain::kFinal},
    {.name = "lm_head.weight", .scope = Scope::kTop, .role = Role::kHead,
     .shape = {Dim::kVocab, Dim::kHidden}, .bits_min = 4},

    // Every decoder layer.
    {.name = "layers.{L}.input_layernorm.weight", .scope = Scope::kEveryLayer, .role = Role::kNorm,
     .shape = {Dim::kHidden}, .transform = Transform::kAddOne, .gain = Gain::kBlock},
    {.name = "layers.{L}.post_attention_layernorm.weight", .scope = Scope::kEveryLayer,
     .role = Role::kNorm, .shape = {Dim::kHidden}, .transform = Transform::kAddOne,
     .gain = Gain::kBlock},

    // Gated DeltaNet.
    {.name = "layers.{L}.linear_attn.in_proj_qkv.weight", .scope = Scope::kDeltaLayer,
     .role = Role::kMixer, .shape = {Dim::kConvChannels, Dim::kHidden}, .bits_min = 3},
    {.name = "layers.{L}.linear_attn.in_proj_z.weight", .scope = Scope::kDeltaLayer,
     .role = Role::kMixer, .shape = {Dim::kDeltaV, Dim::kHidden}, .bits_min = 3},
    {.name = "layers.{L}.linear_attn.in_proj_b.weight", .scope = Scope::kDeltaLayer,
     .role = Role::kMixer, .shape = {Dim::kDeltaHeads, Dim::kHidden}, .bits_min = 4},
    {.name = "layers.{L}.linear_attn.in_proj_a.weight", .scope = Scope::kDeltaLayer,
     .role = Role::kMixer, .shape = {Dim::kDeltaHeads, Dim::kHidden}, .bits_min = 4},
    {.name = "layers.{L}.linear_attn.out_proj.weight", .scope = Scope::kDeltaLayer,
     .role = Role::kMixer, .shape = {Dim::kHidden, Dim::kDeltaV}, .bits_min = 3},
    {.name = "layers.{L}.linear_attn.conv1d.weight", .scope = Scope::kDeltaLayer,
     .role = Role::kState, .shape = {Dim::kConvChannels, Dim::kConvKernel, Dim::kOne},
     .transform = Transform::kMoveConvAxis},
    {.name = "layers.{L}.linear_attn.A_log", .scope = Scope::kDeltaLayer, .role = Role::kState,
     .shape = {Dim::kDeltaHeads}},
    {.name = "layers.{L}.linear_attn.dt_bias", .scope = Scope::kDeltaLayer, .role = Role::kState,
     .shape = {Dim::kDeltaHeads}},
    // Not zero-centred in any layout.
    {.name = "layers.{L}.linear_attn.norm.weight", .scope = Scope::kDeltaLayer,
     .role = Role::kNorm, .shape = {Dim::kDeltaValueDim}},

    // Gated full attention.
    {.name = "layers.{L}.self_attn.q_proj.weight", .scope = Scope::kAttentionLayer,
     .role = Role::kMixer, .shape = {Dim::kQueryAndGate, Dim::kHidden}, .bits_min = 3},
    {.name = "layers.{L}.self_attn.k_proj.weight", .scope = Scope::kAttentionLayer,
     .role = Role::kMixer, .shape = {Dim::kKv, Dim::kHidden}, .bits_min = 3},
    {.name = "layers.{L}.self_attn.v_proj.weight", .scope = Scope::kAttentionLayer,
     .role = Role::kMixer, .shape = {Dim::kKv, Dim::kHidden}, .bits_min = 3},
    {.name = "layers.{L}.self_attn.o_proj.weight", .scope = Scope::kAttentionLayer,
     .role = Role::kMixer, .shape = {Dim::kHidden, Dim::kQuery}, .bits_min = 3},
    {.name = "layers.{L}.self_attn.q_norm.weight", .scope = Scope::kAttentionLayer,
     .role = Role::kNorm, .shape = {Dim::kHeadDim}, .transform = Transform::kAddOne,
     .gain = Gain::kBlock},
    {.name = "layers.{L}.self_attn.k_norm.weight", .scope = Scope::kAttentionLayer,
     .role = Role::kNorm, .shape = {Dim::kHeadDim}, .transform = Transform::kAddOne,
     .gain = Gain::kBlock},

    // Mixture of experts. Low-bit routers destroy quality (trap T-18); 4 bit is the least shipped.
    {.name = "layers.{L}.mlp.gate.weight", .scope = Scope::kEveryLayer, .role = Role::kRouter,
     .shape = {Dim::kExperts, Dim::kHidden}, .bits_min = 4},
    {.name = "layers.{L}.mlp.switch_mlp.gate_proj.weight",
     .fused = "layers.{L}.mlp.experts.gate_up_proj",
     .split = "layers.{L}.mlp.experts.{E}.gate_proj.weight",
     .scope = Scope::kEveryLayer, .role = Role::kExpert,
     .shape = {Dim::kExperts, Dim::kExpertHidden, Dim::kHidden},
     .transform = Transform::kFirstRows, .bits_min = 2},
    {.name = "layers.{L}.mlp.switch_mlp.up_proj.weight",
     .fused = "layers.{L}.mlp.experts.gate_up_proj",
     .split = "layers.{L}.mlp.experts.{E}.up_proj.weight",
     .scope = Scope::kEveryLayer, .role = Role::kExpert,
     .shape = {Dim::kExperts, Dim::kExpertHidden, Dim::kHidden},
     .transform = Transform::kSecondRows, .bits_min = 2},
    {.name = "layers.{L}.mlp.switch_mlp.down_proj.weight",
     .fused = "layers.{L}.mlp.experts.down_proj",
     .split = "layers.{L}.mlp.experts.{E}.down_proj.weight",
     .scope = Scope::kEveryLayer, .role = Role::kExpert,
     .shape = {Dim::kExperts, Dim::kHidden, Dim::kExpertHidden},
     .transform = Transform::kStackExperts, .bits_min = 2},
    {.name = "layers.{L}.mlp.shared_expert.gate_proj.weight", .scope = Scope::kEveryLayer,
     .role = Role::kSharedExpert, .shape = {Dim::kSharedHidden, Dim::kHidden}, .bits_min = 3},
    {.name = "layers.{L}.mlp.shared_expert.up_proj.weight", .scope = Scope::kEveryLayer,
     .role = Role::kSharedExpert, .shape = {Dim::kSharedHidden, Dim::kHidden}, .bits_min = 3},
    {.name = "layers.{L}.mlp.shared_expert.down_proj.weight", .scope = Scope::kEveryLayer,
     .role = Role::kSharedExpert, .shape = {Dim::kHidden, Dim::kSharedHidden}, .bits_min = 3},
    {.name = "layers.{L}.mlp.shared_expert_gate.weight", .scope = Scope::kEveryLayer,
     .role = Role::kSharedGate, .shape = {Dim::kOne, Dim::kHidden}, .bits_min = 4},

    // MTP head; its layer consists of the rows above.
    {.name = "fc.weight", .scope = Scope::kMtp, .role = Role::kMtpFusion,
     .shape = {Dim::kHidden, Dim::kTwiceHidden}, .bits_min = 4},
    {.name = "pre_fc_norm_embedding.weight", .scope = Scope::kMtp, .role = Role::kNorm,
     .shape = {Dim::kHidden}, .transform = Transform::kAddOne, .gain = Gain::kBlock},
    {.name = "pre_fc_norm_hidden.weight", .scope = Scope::kMtp, .role = Role::kNorm,
     .shape = {Dim::kHidden}, .transform = Transform::kAddOne, .gain = Gain::kBlock},
    {.name = "norm.weight", .scope = Scope::kMtp, .role = Role::kNorm,
     .shape = {Dim::kHidden}, .transform = Transform::kAddOne, .gain = Gain::kFinal},

    // Vision tower.
    {.name = "patch_embed.proj.weight", .scope = Scope::kVision, .role = Role::kVision,
     .shape = {Dim::kVisionHidden, Dim::kTemporalPatch, Dim::kPatch, Dim::kPatch, Dim::kChannels},
     .transform = Transform::kMovePatchAxis},
    {.name = "patch_embed.proj.bias", .scope = Scope::kVision, .role = Role::kVision,
     .shape = {Dim::kVisionHidden}},
    {.name = "pos_embed.weight", .scope = Scope::kVision, .role = Role::kVision,
     .shape = {Dim::kVisionPositions, Dim::kVisionHidden}},
    {.name = "blocks.{L}.norm1.weight", .scope = Scope::kVisionBlock, .role = Role::kVision,
     .shape = {Dim::kVisionHidden}},
    {.name = "blocks.{L}.norm1.bias", .scope = Scope::kVisionBlock, .role = Role::kVision,
     .shape = {Dim::kVisionHidden}},
    {.name = "blocks.{L}.norm2.weight", .scope = Scope::kVisionBlock, .role = Role::kVision,
     .shape = {Dim::kVisionHidden}},
    {.name = "blocks.{L}.norm2.bias", .scope = Scope::kVisionBlock, .role = Role::kVision,
     .shape = {Dim::kVisionHidden}},
    {.name = "blocks.{L}.attn.qkv.weight", .scope = Scope::kVisionBlock, .role = Role::kVision,
     .shape = {Dim::kVisionQkv, Dim::kVisionHidden}, .bits_min = 8},
    {.name = "blocks.{L}.attn.qkv.bias", .scope = Scope::kVisionBlock, .role = Role::kVision,
     .shape = {Dim::kVisionQkv}},
    {.name = "blocks.{L}.attn.proj.weight", .scope = Scope::kVisionBlock, .role = Role::kVision,
     .shape = {Dim::kVisionHidden, Dim::kVisionHidden}, .bits_min = 8},
    {.name = "blocks.{L}.attn.proj.bias", .scope = Scope::kVisionBlock, .role = Role::kVision,
     .shape = {Dim::kVisionHidden}},
    {.name = "blocks.{L}.mlp.linear_fc1.weight", .scope = Scope::kVisionBlock,
     .role = Role::kVision, .shape = {Dim::kVisionIntermediate, Dim::kVisionHidden},
     .bits_min = 8},
    {.name = "blocks.{L}.mlp.linear_fc1.bias", .scope = Scope::kVisionBlock,
     .role = Role::kVision, .shape = {Dim::kVisionIntermediate}},
    {.name = "blocks.{L}.mlp.linear_fc2.weight", .scope = Scope::kVisionBlock,
     .role = Role::kVision, .shape = {Dim::kVisionHidden, Dim::kVisionIntermediate},
     .bits_min = 8},
    {.name = "blocks.{L}.mlp.linear_fc2.bias", .scope = Scope::kVisionBlock,
     .role = Role::kVision, .shape = {Dim::kVisionHidden}},
    {.name = "merger.norm.weight", .scope = Scope::kVision, .role = Role::kVision,
     .shape = {Dim::kVisionHidden}},
    {.name = "merger.norm.bias", .scope = Scope::kVision, .role = Role::kVision,
     .shape = {Dim::kVisionHidden}},
    {.name = "merger.linear_fc1.weight", .scope = Scope::kVision, .role = Role::kVision,
     .shape = {Dim::kVisionMerged, Dim::kVisionMerged}, .bits_min = 8},
    {.name = "merger.linear_fc1.bias", .scope = Scope::kVision, .role = Role::kVision,
     .shape = {Dim::kVisionMerged}},
    {.name = "merger.linear_fc2.weight", .scope = Scope::kVision, .role = Role::kVision,
     .shape = {Dim::kVisionOut, Dim::kVisionMerged}, .bits_min = 8},
    {.name = "merger.linear_fc2.bias", .scope = Scope::kVision, .role = Role::kVision,
     .shape = {Dim::kVisionOut}},
};
// clang-format on

struct Prefixes {
  std::string_view canonical;
  std::string_view source;
};

Prefixes prefixes(Scope scope, Group group) {
  switch (group) {
    case Group::kMtp:
      return {"mtp.", "mtp."};
    case Group::kVision:
      return {"vision_tower.", "model.visual."};
    case Group::kTarget:
      break;
  }
  if (scope == Scope::kTop) return {"language_model.", ""};
  return {"language_model.model.", "model.language_model."};
}

void replace_first(std::string& text, std::string_view what, std::int64_t value) {
  const std::size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), std::to_string(value));
}

std::string spell(std::string_view prefix, std::string_view pattern, std::int64_t layer,
                  std::int64_t expert) {
  std::string name = std::string(prefix) + std::string(pattern);
  replace_first(name, "{L}", layer);
  replace_first(name, "{E}", expert);
  return name;
}

class Expansion {
 public:
  explicit Expansion(const ModelConfig& config) : config_(config) {}

  void add(Group group, std::initializer_list<Scope> scopes, std::int64_t layer) {
    for (const TensorRow& row : kTable) {
      for (const Scope scope : scopes) {
        if (row.scope == scope) add_row(row, group, layer);
      }
    }
  }

  std::vector<ExpectedTensor> tensors;

 private:
  void add_row(const TensorRow& row, Group group, std::int64_t layer) {
    ExpectedTensor tensor{.row = &row, .group = group, .layer = layer, .name = {}, .shape = {}};
    tensor.name = spell(prefixes(row.scope, group).canonical, row.name, layer, -1);
    for (const Dim dim : row.shape) {
      if (dim != Dim::kNone) tensor.shape.push_back(dimension(dim, config_));
    }
    tensors.push_back(std::move(tensor));
  }

  const ModelConfig& config_;
};

constexpr std::string_view kMtpPrefixes[] = {"mtp.", "language_model.mtp.", "model.mtp.",
                                             "model.language_model.mtp."};

struct Renaming {
  std::string_view from;
  std::string_view to;
};
// Tried in this order; the first that fits counts.
constexpr Renaming kRenamings[] = {{"model.language_model.visual.", "vision_tower."},
                                   {"model.language_model.", "language_model.model."},
                                   {"model.visual.", "vision_tower."},
                                   {"lm_head.", "language_model.lm_head."},
                                   {"visual.", "vision_tower."},
                                   {"model.", "language_model.model."}};

}  // namespace

const char* role_name(Role role) {
  constexpr const char* kNames[] = {"embedding",     "head",       "norm",        "mixer",
                                    "state",         "router",     "shared_gate", "expert",
                                    "shared_expert", "mtp_fusion", "vision"};
  return kNames[static_cast<std::size_t>(role)];
}

const char* group_name(Group group) {
  constexpr const char* kNames[] = {"target", "mtp", "vision"};
  return kNames[static_cast<std::size_t>(group)];
}

std::int64_t dimension(Dim dim, const ModelConfig& config) {
  const TextConfig& text = config.text;
  const VisionConfig& vision = config.vision;
  switch (dim) {
    case Dim::kNone:
      break;
    case Dim::kOne:
      return 1;
    case Dim::kHidden:
      return text.hidden;
    case Dim::kTwiceHidden:
      return 2 * text.hidden;
    case Dim::kVocab:
      return text.vocab_rows;
    case Dim::kExperts:
      return text.experts;
    case Dim::kExpertHidden:
      return text.expert_hidden;
    case Dim::kSharedHidden:
      return text.shared_expert_hidden;
    case Dim::kConvChannels:
      return text.conv_channels();
    case Dim::kConvKernel:
      return text.conv_kernel;
    case Dim::kDeltaV:
      return text.delta_v_channels();
    case Dim::kDeltaHeads:
      return text.delta_value_heads;
    case Dim::kDeltaValueDim:
      return text.delta_value_dim;
    case Dim::kQueryAndGate:
      return 2 * text.query_heads * text.head_dim;
    case Dim::kQuery:
      return text.query_heads * text.head_dim;
    case Dim::kKv:
      return text.kv_heads * text.head_dim;
    case Dim::kHeadDim:
      return text.head_dim;
    case Dim::kVisionHidden:
      return vision.hidden;
    case Dim::kVisionQkv:
      return 3 * vision.hidden;
    case Dim::kVisionIntermediate:
      return vision.intermediate;
    case Dim::kVisionPositions:
      return vision.position_embeddings;
    case Dim::kVisionMerged:
      return vision.hidden * vision.merge * vision.merge;
    case Dim::kVisionOut:
      return vision.out_hidden;
    case Dim::kPatch:
      return vision.patch;
    case Dim::kTemporalPatch:
      return vision.temporal_patch;
    case Dim::kChannels:
      return vision.in_channels;
  }
  CHECK_MSG(false, "dimension() of no dimension");
  return 0;
}

std::span<const TensorRow> tensor_table() {
  return kTable;
}

std::int64_t ExpectedTensor::element_count() const {
  std::int64_t count = 1;
  for (const std::int64_t axis : shape)
    count *= axis;
  return count;
}

std::string ExpectedTensor::module_path() const {
  constexpr std::string_view kSuffix = ".weight";
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

std::string ExpectedTensor::fused_name() const {
  if (row->fused.empty()) return {};
  return spell(prefixes(row->scope, group).canonical, row->fused, layer, -1);
}

std::string ExpectedTensor::split_name(std::int64_t expert) const {
  if (row->split.empty()) return {};
  return spell(prefixes(row->scope, group).canonical, row->split, layer, expert);
}

std::string ExpectedTensor::source_name() const {
  return spell(prefixes(row->scope, group).source, row->fused.empty() ? row->name : row->fused,
               layer, -1);
}

std::string ExpectedTensor::source_split_name(std::int64_t expert) const {
  return spell(prefixes(row->scope, group).source, row->split.empty() ? row->name : row->split,
               layer, expert);
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  Expansion expansion(config);
  expansion.add(Group::kTarget, {Scope::kModel, Scope::kTop}, -1);
  for (std::int64_t layer = 0; layer < config.text.layers; ++layer) {
    const bool delta =
        config.text.layer_kinds[static_cast<std::size_t>(layer)] == LayerKind::kDelta;
    expansion.add(Group::kTarget,
                  {Scope::kEveryLayer, delta ? Scope::kDeltaLayer : Scope::kAttentionLayer}, layer);
  }
  expansion.add(Group::kMtp, {Scope::kMtp}, -1);
  expansion.add(Group::kMtp, {Scope::kEveryLayer, Scope::kAttentionLayer}, 0);
  if (config.has_vision) {
    expansion.add(Group::kVision, {Scope::kVision}, -1);
    for (std::int64_t block = 0; block < config.vision.depth; ++block) {
      expansion.add(Group::kVision, {Scope::kVisionBlock}, block);
    }
  }
  return std::move(expansion.tensors);
}

std::string_view mtp_prefix(std::string_view stored) {
  for (const std::string_view prefix : kMtpPrefixes) {
    if (stored.starts_with(prefix)) return stored.substr(0, prefix.size());
  }
  return {};
}

std::string canonical_name(std::string_view stored) {
  if (const std::string_view prefix = mtp_prefix(stored); !prefix.empty()) {
    return "mtp." + std::string(stored.substr(prefix.size()));
  }
  // A module path of the quantization block, which has no suffix.
  if (stored == "lm_head") return "language_model.lm_head";
  for (const Renaming& rule : kRenamings) {
    if (stored.starts_with(rule.from)) {
      return std::string(rule.to) + std::string(stored.substr(rule.from.size()));
    }
  }
  return std::string(stored);
}

}  // namespace lockstep::spec
