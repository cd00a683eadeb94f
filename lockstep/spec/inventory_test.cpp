// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>

#include "lockstep/spec/test_artifact.h"

namespace lockstep::spec {
namespace {

using io::Json;

const Json& at(const Json& json, std::initializer_list<const char*> path) {
  const Json* value = &json;
  for (const char* key : path) {
    value = value->find(key);
    CHECK_MSG(value != nullptr, key);
  }
  return *value;
}

TEST(Inventory, DemoModel) {
  const Artifact artifact = Artifact::open("models/demo").value();
  const Json json = inspect_artifact(artifact);
  EXPECT_EQ(at(json, {"layout"}).as_string(), "source");
  EXPECT_EQ(at(json, {"architecture", "layers"}).as_int(), 8);
  EXPECT_EQ(at(json, {"architecture", "attention_layers"}).as_int(), 2);
  EXPECT_EQ(at(json, {"architecture", "vision", "patch_embed_axes"}).as_string(), "source");
  EXPECT_TRUE(at(json, {"mtp", "present"}).as_bool());
  EXPECT_EQ(at(json, {"mtp", "layout"}).as_string(), "inline");
  EXPECT_EQ(at(json, {"mtp", "tensor_count"}).as_int(), 19);
  EXPECT_EQ(at(json, {"mtp", "norm_convention"}).as_string(), "raw");
  EXPECT_EQ(at(json, {"norms", "target", "votes"}).size(), 21u);
  EXPECT_EQ(at(json, {"norms", "mtp", "votes"}).size(), 7u);
  EXPECT_EQ(at(json, {"tokens", "eos"}).as_array()[0].as_int(), 6074);
  EXPECT_EQ(at(json, {"tokens", "image"}).as_int(), 6086);
  EXPECT_EQ(at(json, {"files"}).size(), 2u);
  EXPECT_EQ(at(json, {"warnings"}).size(), 0u);
  // The index of the source states its payload: every byte belongs to one tensor of the table.
  EXPECT_EQ(at(json, {"totals", "bytes"}).as_int(), 41'352'896);
  EXPECT_EQ(at(json, {"totals", "parameters"}).as_int() * 2, 41'352'896);
}

TEST(Inventory, RolesAndFormatsOfAMixedArtifact) {
  TestFolder folder;
  const std::string dir = folder.fresh();
  ASSERT_TRUE(write_test_artifact(dir, {.recipe = test_recipe("w4", 32)}).ok());
  const Artifact artifact = Artifact::open(dir).value();
  const Json json = inspect_artifact(artifact);
  std::map<std::string, std::int64_t> counts;
  std::int64_t bytes = 0;
  for (const Json& entry : at(json, {"roles"}).as_array()) {
    counts[at(entry, {"group"}).as_string() + " " + at(entry, {"role"}).as_string() + " " +
           at(entry, {"format"}).as_string()] = at(entry, {"tensors"}).as_int();
    bytes += at(entry, {"bytes"}).as_int();
  }
  EXPECT_EQ(counts["target expert affine4-g32"], 15);
  EXPECT_EQ(counts["target router affine8-g32"], 5);
  EXPECT_EQ(counts["mtp expert mxfp8"], 3);
  EXPECT_EQ(counts["mtp mtp_fusion bf16"], 1);
  EXPECT_EQ(counts["mtp norm bf16"], 7);
  EXPECT_EQ(bytes, at(json, {"totals", "bytes"}).as_int());
  EXPECT_EQ(at(json, {"mtp", "formats"}).size(), 2u);
  EXPECT_TRUE(at(json, {"architecture", "vision"}).is_null());
  EXPECT_TRUE(at(json, {"tokens", "image"}).is_null());
}

TEST(Inventory, NoHead) {
  TestFolder folder;
  const std::string dir = folder.fresh();
  TestRecipe recipe = test_recipe("mlx");
  recipe.mtp_layout = MtpLayout::kNone;
  ASSERT_TRUE(write_test_artifact(dir, {.recipe = recipe}).ok());
  const Json json = inspect_artifact(Artifact::open(dir).value());
  EXPECT_FALSE(at(json, {"mtp", "present"}).as_bool());
  EXPECT_EQ(at(json, {"mtp", "layout"}).as_string(), "none");
  EXPECT_TRUE(at(json, {"mtp", "norm_convention"}).is_null());
  EXPECT_EQ(at(json, {"warnings"}).size(), 1u);
}

TEST(Inventory, ListsTensors) {
  const Artifact artifact = Artifact::open("models/demo").value();
  const Json list = list_tensors(artifact);
  EXPECT_EQ(list.size(), artifact.tensors().size());
  for (const Json& entry : list.as_array()) {
    if (at(entry, {"name"}).as_string() != "mtp.layers.0.mlp.switch_mlp.up_proj.weight") continue;
    EXPECT_EQ(entry.dump(),
              R"({"name":"mtp.layers.0.mlp.switch_mlp.up_proj.weight",)"
              R"("stored_name":"mtp.layers.0.mlp.experts.gate_up_proj","group":"mtp",)"
              R"("role":"expert","dtype":"BF16","shape":[24,64,256],"format":"bf16",)"
              R"("bytes":786432,"file":"model.safetensors-00002-of-00002.safetensors"})");
    return;
  }
  ADD_FAILURE() << "the tensor is not listed";
}

}  // namespace
}  // namespace lockstep::spec
