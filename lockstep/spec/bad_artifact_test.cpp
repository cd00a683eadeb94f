// SPDX-License-Identifier: Apache-2.0
// Damaged and contradictory folders: each is refused in one sentence that names the culprit.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "lockstep/io/json.h"
#include "lockstep/io/safetensors.h"
#include "lockstep/spec/artifact.h"
#include "lockstep/spec/test_artifact.h"

namespace lockstep::spec {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class BadArtifact : public ::testing::Test {
 protected:
  void write(const TestRecipe& recipe) const {
    fs::remove_all(dir_);
    const Status status = write_test_artifact(dir_, {.recipe = recipe});
    ASSERT_TRUE(status.ok()) << status.error().to_string();
  }

  std::string error() const {
    const auto artifact = Artifact::open(dir_);
    return artifact.ok() ? "no error" : artifact.error().to_string();
  }
  std::vector<std::string> warnings() const { return Artifact::open(dir_).value().warnings(); }

  std::string path(const std::string& name) const { return dir_ + "/" + name; }
  void write_text(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  void replace(const std::string& name, const std::string& what, const std::string& with) const {
    std::string text = io::read_file(path(name), 1 << 24).value();
    const std::size_t at = text.find(what);
    ASSERT_NE(at, std::string::npos) << what;
    text.replace(at, what.size(), with);
    write_text(name, text);
  }

  TestFolder folder_;
  std::string dir_ = folder_.fresh();
};

TestRecipe sharded(int count) {
  TestRecipe recipe = test_recipe("mlx");
  recipe.shard_count = count;
  return recipe;
}

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kShard1 = "model-00001-of-00003.safetensors";
constexpr const char* kShard2 = "model-00002-of-00003.safetensors";

TEST_F(BadArtifact, NoFolderAndNoWeights) {
  EXPECT_THAT(error(), HasSubstr("config.json: can't be opened"));
  fs::create_directories(dir_);
  write_text("config.json", test_config({}));
  EXPECT_THAT(error(), HasSubstr("holds no *.safetensors file"));
}

TEST_F(BadArtifact, MissingShard) {
  write(sharded(3));
  fs::remove(path(kShard2));
  EXPECT_THAT(error(), AllOf(HasSubstr(kShard2), HasSubstr("can't be opened")));
  fs::remove(path(kIndex));
  EXPECT_THAT(error(), HasSubstr("shard 2 of 3 of 'model' is missing (2 found)"));
}

TEST_F(BadArtifact, TruncatedShard) {
  write(sharded(3));
  fs::resize_file(path(kShard2), fs::file_size(path(kShard2)) - 1);
  EXPECT_THAT(error(), AllOf(HasSubstr(kShard2), HasSubstr("the download is cut short")));
  fs::resize_file(path(kShard2), 4);
  EXPECT_THAT(error(), HasSubstr("has 4 bytes"));
  fs::resize_file(path(kShard2), 0);
  EXPECT_THAT(error(), HasSubstr("has 0 bytes"));
}

TEST_F(BadArtifact, SwappedShards) {
  write(sharded(3));
  fs::rename(path(kShard1), path("other"));
  fs::rename(path(kShard2), path(kShard1));
  fs::rename(path("other"), path(kShard2));
  EXPECT_THAT(error(), AllOf(HasSubstr("says that tensor '"), HasSubstr("holds it; a shard is")));
}

TEST_F(BadArtifact, ExtraShard) {
  write(sharded(3));
  fs::copy(path(kShard1), path("model-00004-of-00004.safetensors"));
  EXPECT_THAT(error(), HasSubstr("holds 'model-00004-of-00004.safetensors', which"));
  fs::remove(path("model-00004-of-00004.safetensors"));
  fs::copy(path(kShard1), path("adapter.safetensors"));
  EXPECT_THAT(warnings(), Contains(HasSubstr("file 'adapter.safetensors' is not named")));
}

TEST_F(BadArtifact, StaleIndex) {
  write(sharded(3));
  replace(kIndex, "\"mtp.norm.weight\"", "\"mtp.norm.wait\"");
  EXPECT_THAT(error(), HasSubstr("does not list tensor 'mtp.norm.weight'"));
  write(sharded(3));
  replace(kIndex, "\"weight_map\": {",
          "\"weight_map\": {\"ghost\": \"model-00001-of-00003.safetensors\",");
  EXPECT_THAT(error(), HasSubstr("says that tensor 'ghost' is in"));
}

TEST_F(BadArtifact, IndexThatLeavesTheFolder) {
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..",
                           "a\\\\b.safetensors", ".safetensors", "model.bin", ""}) {
    write(test_recipe("mlx"));
    write_text(kIndex, std::string(R"({"weight_map": {"t": ")") + name + "\"}}");
    EXPECT_THAT(error(), HasSubstr("no plain *.safetensors name inside the folder")) << name;
  }
}

TEST_F(BadArtifact, MalformedIndex) {
  write(test_recipe("mlx"));
  for (const char* text : {"", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {"t": 3}})",
                           R"({"weight_map": {}})"}) {
    write_text(kIndex, text);
    EXPECT_THAT(error(), HasSubstr(kIndex)) << text;
  }
}

TEST_F(BadArtifact, SameTensorInTwoFiles) {
  TestRecipe recipe = test_recipe("mlx");
  recipe.write_index = false;
  write(recipe);
  fs::copy(path("model.safetensors"), path("other.safetensors"));
  EXPECT_THAT(error(), HasSubstr("is also in 'model.safetensors'"));
}

TEST_F(BadArtifact, SameTensorUnderTwoNames) {
  TestRecipe recipe = test_recipe("mlx");
  recipe.write_index = false;
  write(recipe);
  const std::vector<io::TensorData> twin = {{"lm_head.weight", DType::kU8, {1}, {std::byte{0}}}};
  ASSERT_TRUE(io::write_safetensors(path("twin.safetensors"), twin, {}).ok());
  EXPECT_THAT(error(), HasSubstr("is the same tensor as"));
}

TEST_F(BadArtifact, HugeHeader) {
  write(test_recipe("mlx"));
  std::string bytes(64, '\0');
  bytes[7] = 0x10;  // 2^60
  write_text("model.safetensors", bytes);
  EXPECT_THAT(error(), HasSubstr("states a header of 1152921504606846976 bytes"));
}

// Each of the 46 tensors of a head in turn: nothing is invented.
TEST_F(BadArtifact, AnyMissingTensorOfAHeadIsNamed) {
  TestRecipe recipe = test_recipe("w4-all", 32);
  write(recipe);
  std::vector<std::string> names;
  {
    const auto file = io::SafetensorsFile::open(path("model.safetensors"));
    for (const io::TensorView& tensor : file->tensors()) {
      if (tensor.name.starts_with("mtp.")) names.push_back(tensor.name);
    }
  }
  ASSERT_EQ(names.size(), 46u);
  for (const std::string& name : names) {
    recipe.omit = {name};
    write(recipe);
    const std::string text = error();
    const std::string module = name.substr(0, name.rfind('.'));
    EXPECT_THAT(text, HasSubstr(module)) << name;
    EXPECT_THAT(text, HasSubstr("is missing")) << name;
  }
  recipe.omit = {"mtp.fc.weight", "mtp.fc.scales", "mtp.fc.biases"};
  write(recipe);
  EXPECT_THAT(error(),
              HasSubstr("tensor 'mtp.fc.weight' is missing from the MTP head, of which 43"));
}

TEST_F(BadArtifact, MissingTensorOfTheTargetIsNamed) {
  TestRecipe recipe = test_recipe("source-split");
  recipe.omit = {"model.language_model.layers.2.mlp.experts.4.up_proj.weight"};
  write(recipe);
  EXPECT_THAT(error(), HasSubstr("layers.2.mlp.experts.4.up_proj.weight"));
  recipe.omit = {"model.language_model.layers.2.mlp.experts.0.up_proj.weight"};
  write(recipe);
  EXPECT_THAT(error(), HasSubstr("layers.2.mlp.experts.0.up_proj.weight"));
  recipe = test_recipe("source");
  recipe.omit = {"lm_head.weight"};
  write(recipe);
  EXPECT_THAT(error(), HasSubstr("(in a source: 'lm_head.weight') is missing"));
}

TEST_F(BadArtifact, WrongShape) {
  TestRecipe recipe = test_recipe("w4", 32);
  recipe.edit = [](io::TensorData& tensor) {
    if (tensor.name == "language_model.model.norm.weight") tensor.shape = {48, 2};
  };
  write(recipe);
  EXPECT_THAT(error(), HasSubstr("norm.weight' has shape [48, 2], expected [96] by the config"));
  recipe.edit = [](io::TensorData& tensor) {
    if (tensor.name == "mtp.layers.0.mlp.switch_mlp.up_proj.weight") {
      std::swap(tensor.shape[0], tensor.shape[1]);
    }
  };
  write(recipe);
  EXPECT_THAT(error(), HasSubstr("has shape [32, 7, 24], expected [7, 32, words] by the config"));
}

TEST_F(BadArtifact, TensorsThatFitNoFormat) {
  TestRecipe recipe = test_recipe("w4", 32);
  const std::string module = "language_model.model.layers.0.linear_attn.out_proj";
  recipe.edit = [&](io::TensorData& tensor) {
    if (tensor.name == module + ".scales") tensor.dtype = DType::kI16;
    if (tensor.name == module + ".biases") tensor.dtype = DType::kI16;
  };
  write(recipe);
  EXPECT_THAT(error(), HasSubstr("out_proj.weight' with 36 words a row and I16 scales of 9 groups "
                                 "fits no known format of input width 288 with biases"));
  recipe.edit = nullptr;
  recipe.omit = {module + ".scales", module + ".biases"};
  write(recipe);
  EXPECT_THAT(error(), HasSubstr("its '.scales' tensor is missing"));
  recipe.omit = {};
  recipe.edit = [&](io::TensorData& tensor) {
    if (tensor.name != module + ".weight") return;
    tensor.dtype = DType::kBF16;
    tensor.shape.back() *= 2;
  };
  write(recipe);
  EXPECT_THAT(error(), HasSubstr("is BF16 but has '.scales' or '.biases' beside it"));
  recipe.edit = [&](io::TensorData& tensor) {
    if (tensor.name == module + ".weight") tensor.dtype = DType::kI32;
  };
  write(recipe);
  EXPECT_THAT(error(), HasSubstr("has dtype I32"));
}

TEST_F(BadArtifact, QuantizationBlockThatContradicts) {
  write(test_recipe("w4", 32));
  const std::string router =
      "\"language_model.model.layers.0.mlp.gate\": {\n      \"group_size\": 32,"
      "\n      \"bits\": ";
  replace("config.json", router + "8", router + "4");
  EXPECT_THAT(error(), HasSubstr("gate.weight' is affine8-g32 by its tensors, but config.json says "
                                 "affine 4 bit group 32 for it"));

  TestRecipe recipe = test_recipe("w4", 32);
  recipe.write_quantization = false;
  write(recipe);
  EXPECT_THAT(warnings(), Contains(HasSubstr("has no 'quantization' block")));
  const std::string config = io::read_file(path("config.json"), 1 << 20).value();
  const auto with_block = [&](const std::string& block) {
    write_text("config.json", "{\"quantization\": " + block + "," + config.substr(1));
  };
  with_block(R"({"bits": 6, "group_size": 32})");
  EXPECT_THAT(error(), HasSubstr("but config.json says affine 6 bit group 32 for all"));
  with_block(R"({"lm_head": false})");
  EXPECT_THAT(error(), HasSubstr("but config.json says float for it"));
  // A float that the block calls quantised.
  with_block(R"({"mtp.fc": {"bits": 4}})");
  EXPECT_THAT(error(), HasSubstr("'mtp.fc.weight' is bf16 by its tensors"));
  // The global triple says nothing about a head of another format; its own block does.
  write_text("config.json",
             R"({"mtplx_mtp_quantization": {"bits": 4, "mode": "mxfp4"},)" + config.substr(1));
  EXPECT_THAT(error(), HasSubstr("is mxfp8 by its tensors, but config.json says mxfp4"));
}

TEST_F(BadArtifact, TwoHeads) {
  TestRecipe recipe = test_recipe("mlx");
  recipe.write_index = false;
  write(recipe);
  const std::vector<io::TensorData> other = {
      {"language_model.mtp.fc.weight", DType::kU8, {1}, {std::byte{0}}}};
  ASSERT_TRUE(io::write_safetensors(path("other.safetensors"), other, {}).ok());
  EXPECT_THAT(error(), HasSubstr("below both 'language_model.mtp.' and 'mtp.'"));
  fs::rename(path("other.safetensors"), path("model-mtp.safetensors"));
  EXPECT_THAT(warnings(), Contains(HasSubstr("side file's MTP head is ignored")));
}

TEST_F(BadArtifact, SecondHeadLayer) {
  TestRecipe recipe = test_recipe("mlx");
  recipe.write_index = false;
  write(recipe);
  const std::vector<io::TensorData> other = {
      {"mtp.layers.1.input_layernorm.weight", DType::kU8, {1}, {std::byte{0}}}};
  ASSERT_TRUE(io::write_safetensors(path("other.safetensors"), other, {}).ok());
  EXPECT_THAT(error(), HasSubstr("belongs to a second MTP layer"));
}

TEST_F(BadArtifact, SideFileWithoutHeadTensors) {
  TestRecipe recipe = test_recipe("mlx");
  recipe.mtp_layout = MtpLayout::kSideFile;
  write(recipe);
  const std::vector<io::TensorData> other = {{"fc.weight", DType::kU8, {1}, {std::byte{0}}}};
  ASSERT_TRUE(io::write_safetensors(path("mtp/weights.safetensors"), other, {}).ok());
  EXPECT_THAT(error(), HasSubstr("no tensor whose name begins with 'mtp.'"));
  write(recipe);
  fs::copy(path("mtp/weights.safetensors"), path("model-mtp.safetensors"));
  EXPECT_THAT(error(), HasSubstr("two side files"));
  write(recipe);
  write_text("mtp/manifest.json", "{");
  EXPECT_THAT(error(), HasSubstr("manifest.json: not valid JSON"));
}

TEST_F(BadArtifact, WrongDrafterFolder) {
  write(test_recipe("mlx"));
  const auto open = [&](const std::string& drafter) {
    const auto artifact = Artifact::open(dir_, {.drafter_dir = drafter});
    return artifact.ok() ? "no error" : artifact.error().to_string();
  };
  EXPECT_THAT(open("/nonexistent"), HasSubstr("config.json: can't be opened"));
  EXPECT_THAT(open(dir_), HasSubstr("is 'qwen3_5_moe', a drafter folder has 'qwen3_5_mtp'"));
  // A head of another geometry: the first tensor that does not fit is named.
  TestRecipe drafter = test_recipe("mlx");
  drafter.mtp_layout = MtpLayout::kDrafter;
  ASSERT_TRUE(write_test_artifact(path("b"), {.preset = "tiny-b", .recipe = drafter}).ok());
  EXPECT_THAT(open(path("b/drafter")),
              HasSubstr("tensor 'fc.weight' has shape [128, 256], expected [96, 192]"));
}

TEST_F(BadArtifact, UnknownTensorsAreSaid) {
  TestRecipe recipe = test_recipe("mlx");
  recipe.write_index = false;
  write(recipe);
  std::vector<io::TensorData> extra;
  for (int i = 0; i < 7; ++i) {
    extra.push_back({"extra." + std::to_string(i), DType::kU8, {1}, {std::byte{0}}});
  }
  ASSERT_TRUE(io::write_safetensors(path("extra.safetensors"), extra, {}).ok());
  EXPECT_THAT(warnings(),
              Contains(HasSubstr("7 tensor(s) of the artifact are not part of this model and are "
                                 "ignored: extra.0, extra.1, extra.2, extra.3, extra.4, ...")));
}

TEST_F(BadArtifact, FormatsThatDifferWithinABank) {
  TestRecipe recipe = test_recipe("source-split");
  recipe.edit = [](io::TensorData& tensor) {
    if (tensor.name.ends_with("layers.1.mlp.experts.3.down_proj.weight")) {
      tensor.dtype = DType::kF16;
    }
  };
  write(recipe);
  EXPECT_THAT(error(), HasSubstr("is f16, but expert 0 is bf16"));
}

}  // namespace
}  // namespace lockstep::spec
