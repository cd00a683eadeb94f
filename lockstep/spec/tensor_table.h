// SPDX-License-Identifier: Apache-2.0
// The tensors of the family, as data: names in every layout, shapes from the config, roles, and
// what may be done to them (spec sections 2.1, 2.2). Loader, inspector, and test artifacts read
// this one table; the canonical name of a tensor is its MLX name.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/spec/config.h"

namespace lockstep::spec {

// Groups decide their norm convention separately (spec 2.4).
enum class Group : std::uint8_t { kTarget, kMtp, kVision };

enum class Role : std::uint8_t {
  kEmbedding,
  kHead,
  kNorm,
  kMixer,       // projections of a delta or attention layer
  kState,       // conv taps, A_log, dt_bias
  kRouter,      // mlp.gate
  kSharedGate,  // mlp.shared_expert_gate, one row
  kExpert,      // a bank: one matrix per routed expert
  kSharedExpert,
  kMtpFusion,
  kVision,
};
const char* role_name(Role role);
const char* group_name(Group group);

// Where a row stands, hence how often and under which prefix.
enum class Scope : std::uint8_t {
  kModel,       // once, below the language model
  kTop,         // once, beside it (lm_head)
  kEveryLayer,  // every decoder layer and the head's layer
  kDeltaLayer,
  kAttentionLayer,  // full-attention layers and the head's layer
  kMtp,             // once, below the head
  kVision,          // once, below the tower
  kVisionBlock,
};

// Symbols of shapes; dimension() gives the number. kNone ends a shape.
enum class Dim : std::uint8_t {
  kNone,
  kOne,
  kHidden,
  kTwiceHidden,
  kVocab,
  kExperts,
  kExpertHidden,
  kSharedHidden,
  kConvChannels,
  kConvKernel,
  kDeltaV,      // value heads x value dim
  kDeltaHeads,  // value heads
  kDeltaValueDim,
  kQueryAndGate,  // query heads x 2 head dim
  kQuery,         // query heads x head dim
  kKv,            // kv heads x head dim
  kHeadDim,
  kVisionHidden,
  kVisionQkv,
  kVisionIntermediate,
  kVisionPositions,
  kVisionMerged,  // hidden x merge^2
  kVisionOut,
  kPatch,
  kTemporalPatch,
  kChannels,
};
std::int64_t dimension(Dim dim, const ModelConfig& config);

// From the source's stored form to the MLX form.
enum class Transform : std::uint8_t {
  kNone,
  kFirstRows,      // expert bank: first half of the rows of each fused expert
  kSecondRows,     // expert bank: second half
  kStackExperts,   // expert bank: whole fused tensor; a split source is stacked
  kMoveConvAxis,   // [C, 1, K] -> [C, K, 1]; the bytes stay
  kMovePatchAxis,  // [O, C, T, H, W] -> [O, T, H, W, C]
  kAddOne,         // zero-centred gain w -> gamma = 1 + w
};

// What the values of a gain vector look like, for the norm decision.
enum class Gain : std::uint8_t {
  kNo,     // no gain, or one that is never zero-centred (linear_attn.norm, vision)
  kBlock,  // raw values have means below .5
  kFinal,  // raw values reach means of .9; the threshold is 1.5
};

struct TensorRow {
  std::string_view name = {};   // below the scope's prefix; {L} is the layer or block
  std::string_view fused = {};  // name in a source with fused experts; empty: the same
  std::string_view split = {};  // name in a source with one tensor per expert {E}; empty: none
  Scope scope = Scope::kModel;
  Role role = Role::kNorm;
  std::array<Dim, 5> shape{};  // in the MLX form
  Transform transform = Transform::kNone;
  Gain gain = Gain::kNo;
  int bits_min = 16;  // smallest permitted code; 16: stays a float

  bool quantizable() const { return bits_min < 16; }
};

std::span<const TensorRow> tensor_table();

// One tensor that a model of this geometry has.
struct ExpectedTensor {
  const TensorRow* row = nullptr;
  Group group = Group::kTarget;
  std::int64_t layer = -1;  // decoder layer, head layer or vision block; -1: none
  std::string name;         // canonical, e.g. language_model.model.layers.3.mlp.gate.weight
  std::vector<std::int64_t> shape;

  std::int64_t element_count() const;
  // Canonical name without ".weight": the path of the quantization block.
  std::string module_path() const;
  // Canonical spelling of the stored names of fused and split sources; empty where the row has
  // none.
  std::string fused_name() const;
  std::string split_name(std::int64_t expert) const;
  // Name in a Hugging Face checkpoint with fused experts.
  std::string source_name() const;
  std::string source_split_name(std::int64_t expert) const;
};

// Every tensor of the groups that the config describes; the head is listed even if the config
// declares none. In table order, layer by layer.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

// Renames a stored tensor name or module path to the canonical form (spec 2.2, 2.3): source and
// text-only prefixes become MLX ones, every spelling of the head becomes "mtp.".
std::string canonical_name(std::string_view stored);

// The head's prefix in `stored` ("mtp.", "language_model.mtp.", ...); empty when it has none.
std::string_view mtp_prefix(std::string_view stored);

}  // namespace lockstep::spec
