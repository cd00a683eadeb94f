// SPDX-License-Identifier: Apache-2.0
// The counts and sums of spec 2.6, which were computed from published files.
#include "lockstep/spec/tensor_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>

namespace lockstep::spec {
namespace {

using ::testing::ElementsAre;

const ModelConfig& config_35b() {
  static const ModelConfig config = load_config("tests/data/qwen3.6-35b-a3b.json").value();
  return config;
}

std::vector<ExpectedTensor> group(Group wanted) {
  std::vector<ExpectedTensor> tensors = expected_tensors(config_35b());
  std::erase_if(tensors, [&](const ExpectedTensor& t) { return t.group != wanted; });
  return tensors;
}

std::size_t fused_source_count(Group wanted) {
  std::set<std::string> names;
  for (const ExpectedTensor& tensor : group(wanted))
    names.insert(tensor.source_name());
  return names.size();
}

std::size_t split_source_count(Group wanted) {
  std::set<std::string> names;
  for (const ExpectedTensor& tensor : group(wanted)) {
    const bool bank = tensor.row->role == Role::kExpert;
    for (std::int64_t e = 0; e < (bank ? tensor.shape[0] : 1); ++e) {
      names.insert(tensor.source_split_name(e));
    }
  }
  return names.size();
}

TEST(TensorTable, SourceCounts) {
  EXPECT_EQ(fused_source_count(Group::kTarget), 693u);
  EXPECT_EQ(fused_source_count(Group::kVision), 333u);
  EXPECT_EQ(fused_source_count(Group::kMtp), 19u);
  EXPECT_EQ(split_source_count(Group::kMtp), 785u);
  EXPECT_EQ(fused_source_count(Group::kTarget) + fused_source_count(Group::kVision) +
                fused_source_count(Group::kMtp),
            1045u);
  EXPECT_EQ(fused_source_count(Group::kTarget) + fused_source_count(Group::kVision) +
                split_source_count(Group::kMtp),
            1811u);
}

TEST(TensorTable, ModuleAndMlxCounts) {
  std::size_t modules = 0;
  std::size_t routers = 0;
  std::size_t others = 0;
  for (const ExpectedTensor& tensor : group(Group::kTarget)) {
    const Role role = tensor.row->role;
    ++(tensor.row->quantizable() ? modules : others);
    routers += role == Role::kRouter || role == Role::kSharedGate;
  }
  EXPECT_EQ(modules, 512u);
  EXPECT_EQ(routers, 80u);
  EXPECT_EQ(others, 221u);
  EXPECT_EQ(3 * modules + others, 1757u);
  EXPECT_EQ(3 * modules + others + group(Group::kVision).size(), 2090u);
  std::size_t mtp_modules = 0;
  for (const ExpectedTensor& tensor : group(Group::kMtp))
    mtp_modules += tensor.row->quantizable();
  EXPECT_EQ(mtp_modules, 13u);
  EXPECT_EQ(group(Group::kMtp).size(), 20u);
}

TEST(TensorTable, ParameterSums) {
  std::map<Group, std::int64_t> sums;
  for (const ExpectedTensor& tensor : expected_tensors(config_35b())) {
    sums[tensor.group] += tensor.element_count();
  }
  EXPECT_EQ(sums[Group::kTarget], 34'660'610'688);
  EXPECT_EQ(sums[Group::kVision], 446'571'248);
  EXPECT_EQ(sums[Group::kMtp], 844'640'768);
}

// Spec 2.6: quantisable parameters of the language model, and per layer kind (section 0).
TEST(TensorTable, QuantizableParameters) {
  std::int64_t quantizable = 0;
  std::map<std::int64_t, std::int64_t> mixer_of_layer;
  std::int64_t moe_of_layer_0 = 0;
  for (const ExpectedTensor& tensor : group(Group::kTarget)) {
    if (!tensor.row->quantizable()) continue;
    quantizable += tensor.element_count();
    if (tensor.row->role == Role::kMixer) mixer_of_layer[tensor.layer] += tensor.element_count();
    if (tensor.layer == 0 && tensor.row->role != Role::kMixer) {
      moe_of_layer_0 += tensor.element_count();
    }
  }
  EXPECT_EQ(quantizable, 34'659'450'880);
  EXPECT_EQ(mixer_of_layer[0], 33'685'504);
  EXPECT_EQ(mixer_of_layer[3], 27'262'976);
  EXPECT_EQ(moe_of_layer_0, 808'978'432);
}

const ExpectedTensor* find(const std::vector<ExpectedTensor>& tensors, const std::string& name) {
  for (const ExpectedTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

TEST(TensorTable, NamesAndShapes) {
  const auto tensors = expected_tensors(config_35b());
  const auto* up = find(tensors, "language_model.model.layers.7.mlp.switch_mlp.up_proj.weight");
  ASSERT_NE(up, nullptr);
  EXPECT_THAT(up->shape, ElementsAre(256, 512, 2048));
  EXPECT_EQ(up->source_name(), "model.language_model.layers.7.mlp.experts.gate_up_proj");
  EXPECT_EQ(up->source_split_name(5), "model.language_model.layers.7.mlp.experts.5.up_proj.weight");
  EXPECT_EQ(up->fused_name(), "language_model.model.layers.7.mlp.experts.gate_up_proj");
  EXPECT_EQ(up->module_path(), "language_model.model.layers.7.mlp.switch_mlp.up_proj");

  EXPECT_THAT(find(tensors, "language_model.model.layers.0.linear_attn.in_proj_qkv.weight")->shape,
              ElementsAre(8192, 2048));
  EXPECT_THAT(find(tensors, "language_model.model.layers.0.linear_attn.conv1d.weight")->shape,
              ElementsAre(8192, 4, 1));
  EXPECT_THAT(find(tensors, "language_model.model.layers.3.self_attn.q_proj.weight")->shape,
              ElementsAre(8192, 2048));
  EXPECT_EQ(find(tensors, "language_model.model.layers.3.linear_attn.A_log"), nullptr);
  EXPECT_EQ(find(tensors, "language_model.lm_head.weight")->source_name(), "lm_head.weight");
  EXPECT_THAT(find(tensors, "mtp.fc.weight")->shape, ElementsAre(2048, 4096));
  EXPECT_EQ(find(tensors, "mtp.layers.0.mlp.switch_mlp.down_proj.weight")->source_name(),
            "mtp.layers.0.mlp.experts.down_proj");
  const auto* patch = find(tensors, "vision_tower.patch_embed.proj.weight");
  EXPECT_THAT(patch->shape, ElementsAre(1152, 2, 16, 16, 3));
  EXPECT_EQ(patch->source_name(), "model.visual.patch_embed.proj.weight");
  EXPECT_THAT(find(tensors, "vision_tower.merger.linear_fc1.weight")->shape,
              ElementsAre(4608, 4608));
}

// Trap T-5: the delta norm is never zero-centred; trap T-4: final norms have their own threshold.
TEST(TensorTable, GainsOfNorms) {
  for (const TensorRow& row : tensor_table()) {
    if (row.name.ends_with("linear_attn.norm.weight") || row.scope == Scope::kVision ||
        row.scope == Scope::kVisionBlock) {
      EXPECT_EQ(row.gain, Gain::kNo) << row.name;
    } else if (row.role == Role::kNorm) {
      EXPECT_EQ(row.gain, row.name == "norm.weight" ? Gain::kFinal : Gain::kBlock) << row.name;
      EXPECT_EQ(row.transform, Transform::kAddOne) << row.name;
    }
  }
}

TEST(CanonicalName, RenamesEverySpelling) {
  const std::pair<const char*, const char*> kCases[] = {
      {"model.language_model.norm.weight", "language_model.model.norm.weight"},
      {"model.norm.weight", "language_model.model.norm.weight"},
      {"language_model.model.norm.weight", "language_model.model.norm.weight"},
      {"lm_head.weight", "language_model.lm_head.weight"},
      {"lm_head", "language_model.lm_head"},
      {"language_model.lm_head.weight", "language_model.lm_head.weight"},
      {"model.visual.pos_embed.weight", "vision_tower.pos_embed.weight"},
      {"model.language_model.visual.pos_embed.weight", "vision_tower.pos_embed.weight"},
      {"vision_tower.pos_embed.weight", "vision_tower.pos_embed.weight"},
      {"mtp.fc", "mtp.fc"},
      {"language_model.mtp.fc", "mtp.fc"},
      {"model.mtp.fc", "mtp.fc"},
      {"model.language_model.mtp.fc", "mtp.fc"},
      {"something.else", "something.else"},
      {"", ""}};
  for (const auto& [stored, canonical] : kCases)
    EXPECT_EQ(canonical_name(stored), canonical);
}

}  // namespace
}  // namespace lockstep::spec
