// SPDX-License-Identifier: Apache-2.0
// Every layout of spec 2.2, written by test_artifact and recognised again.
#include "lockstep/spec/artifact.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "lockstep/spec/test_artifact.h"

namespace lockstep::spec {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kDemo = "models/demo";

class ArtifactTest : public ::testing::Test {
 protected:
  Artifact written(const TestArtifactOptions& options, const std::string& drafter = "") {
    const std::string dir = folder_.fresh();
    const Status status = write_test_artifact(dir, options);
    CHECK_MSG(status.ok(), status.ok() ? "" : status.error().to_string().c_str());
    return Artifact::open(dir, {.drafter_dir = drafter.empty() ? "" : dir + "/" + drafter}).value();
  }

  Artifact converted(const TestRecipe& recipe) {
    const std::string dir = folder_.fresh();
    const Artifact demo = Artifact::open(kDemo).value();
    const Status status = write_converted_artifact(demo, dir, recipe);
    CHECK_MSG(status.ok(), status.ok() ? "" : status.error().to_string().c_str());
    return Artifact::open(dir).value();
  }

  TestFolder folder_;
};

using DemoModel = ArtifactTest;

struct RecipeCase {
  const char* recipe;
  std::size_t head_tensors;  // spec 2.6
  TargetLayout layout;
  NormConvention norms;
  NormConvention mtp_norms;
};

std::ostream& operator<<(std::ostream& out, const RecipeCase& c) {
  return out << c.recipe;
}

constexpr NormConvention kRaw = NormConvention::kRaw;
constexpr NormConvention kGamma = NormConvention::kGamma;

class Recipes : public ArtifactTest, public ::testing::WithParamInterface<RecipeCase> {};

// The head counts are those of the published artifacts; tiny-a has 7 experts: 17 + 3*7 split.
INSTANTIATE_TEST_SUITE_P(
    All, Recipes,
    ::testing::Values(RecipeCase{"source", 19, TargetLayout::kSource, kRaw, kRaw},
                      RecipeCase{"source-split", 38, TargetLayout::kSource, kRaw, kRaw},
                      RecipeCase{"mlx", 20, TargetLayout::kMlx, kGamma, kGamma},
                      RecipeCase{"w4", 30, TargetLayout::kMlx, kGamma, kGamma},
                      RecipeCase{"mxfp4", 31, TargetLayout::kMlx, kGamma, kRaw},
                      RecipeCase{"6bit", 36, TargetLayout::kMlx, kGamma, kGamma},
                      RecipeCase{"head-42", 42, TargetLayout::kMlx, kGamma, kGamma},
                      RecipeCase{"w4-all", 46, TargetLayout::kMlx, kGamma, kGamma}));

TEST_P(Recipes, AreRecognised) {
  const RecipeCase& c = GetParam();
  const Artifact artifact = written({.recipe = test_recipe(c.recipe, 32)});
  EXPECT_EQ(artifact.target_layout(), c.layout);
  EXPECT_EQ(artifact.mtp_layout(), MtpLayout::kInline);
  EXPECT_EQ(artifact.mtp_tensor_count(), c.head_tensors);
  EXPECT_EQ(artifact.target_norms().convention, c.norms);
  EXPECT_EQ(artifact.mtp_norms().convention, c.mtp_norms);
  EXPECT_THAT(artifact.warnings(), IsEmpty());
}

TEST_P(Recipes, KeepTheirFormats) {
  const RecipeCase& c = GetParam();
  const TestRecipe recipe = test_recipe(c.recipe, 32);
  const Artifact artifact = written({.recipe = recipe});
  for (const StoredTensor& tensor : artifact.tensors()) {
    const auto& formats = tensor.expected.group == Group::kMtp ? recipe.mtp : recipe.target;
    const auto wanted = formats.find(tensor.expected.row->role);
    if (wanted == formats.end()) {
      EXPECT_EQ(tensor.format, quant::float_format(DType::kBF16)) << tensor.expected.name;
    } else if (tensor.expected.row->quantizable()) {
      EXPECT_EQ(tensor.format, wanted->second) << tensor.expected.name;
    }
  }
}

struct HeadCase {
  MtpLayout layout;
  const char* stored_name;
};

class HeadLayouts : public ArtifactTest, public ::testing::WithParamInterface<HeadCase> {};

INSTANTIATE_TEST_SUITE_P(
    All, HeadLayouts,
    ::testing::Values(HeadCase{MtpLayout::kInline, "mtp.fc.weight"},
                      HeadCase{MtpLayout::kNested, "language_model.mtp.fc.weight"},
                      HeadCase{MtpLayout::kModel, "model.mtp.fc.weight"},
                      HeadCase{MtpLayout::kModelNested, "model.language_model.mtp.fc.weight"},
                      HeadCase{MtpLayout::kSideFile, "mtp.fc.weight"},
                      HeadCase{MtpLayout::kDrafter, "fc.weight"}));

TEST_P(HeadLayouts, AreFound) {
  for (const char* name : {"mlx", "w4", "w4-all", "source-split"}) {
    TestRecipe recipe = test_recipe(name, 32);
    recipe.mtp_layout = GetParam().layout;
    const bool drafter = GetParam().layout == MtpLayout::kDrafter;
    const Artifact artifact = written({.recipe = recipe}, drafter ? "drafter" : "");
    EXPECT_EQ(artifact.mtp_layout(), GetParam().layout) << name;
    EXPECT_EQ(artifact.find("mtp.fc.weight")->parts[0].weight->name, GetParam().stored_name);
    EXPECT_EQ(artifact.mtp_norms().convention, recipe.mtp_norms) << name;
    EXPECT_THAT(artifact.warnings(), IsEmpty()) << name;
  }
}

TEST_F(ArtifactTest, SideFileInTheFolderItself) {
  TestRecipe recipe = test_recipe("mlx");
  recipe.mtp_layout = MtpLayout::kSideFile;
  recipe.side_file = "model-mtp.safetensors";
  EXPECT_EQ(written({.recipe = recipe}).mtp_layout(), MtpLayout::kSideFile);
  recipe.write_index = false;
  EXPECT_EQ(written({.recipe = recipe}).mtp_layout(), MtpLayout::kSideFile);
}

// Fused, quantised experts beside gamma norms: only the manifest keeps them from being added to.
TEST_F(ArtifactTest, ManifestDecidesNormsOfASideFile) {
  TestRecipe recipe = test_recipe("w4-all", 32);
  recipe.mtp_layout = MtpLayout::kSideFile;
  recipe.mtp_experts = ExpertSpelling::kFused;
  recipe.manifest = R"({"artifact_schema_version": 1, "rmsnorm_weight_format": "mlx_gamma"})";
  const Artifact artifact = written({.recipe = recipe});
  EXPECT_EQ(artifact.mtp_norms().convention, kGamma);
  EXPECT_THAT(artifact.mtp_norms().evidence, HasSubstr("metadata:"));
  EXPECT_EQ(artifact.find("mtp.layers.0.mlp.switch_mlp.up_proj.weight")->storage,
            Storage::kFusedSecond);
  // 10 modules of 3, gate_up fused, and 7 norms: 12 * 3 + 7.
  EXPECT_EQ(artifact.mtp_tensor_count(), 43u);

  // A manifest without the statement still rules out the layout evidence.
  recipe.manifest = R"({"artifact_schema_version": 1})";
  EXPECT_EQ(written({.recipe = recipe}).mtp_norms().convention, kGamma);
  // Without one, source spellings suggest raw, and the values' objection is said.
  recipe.manifest.clear();
  const Artifact unstated = written({.recipe = recipe});
  EXPECT_EQ(unstated.mtp_norms().convention, kRaw);
  EXPECT_THAT(unstated.warnings(), Contains(HasSubstr("MTP head: norms are taken as raw")));
}

TEST_F(ArtifactTest, UnknownStatementOfAManifestIsSaid) {
  TestRecipe recipe = test_recipe("mlx");
  recipe.mtp_layout = MtpLayout::kSideFile;
  recipe.manifest = R"({"rmsnorm_weight_format": "sideways"})";
  const Artifact artifact = written({.recipe = recipe});
  EXPECT_EQ(artifact.mtp_norms().convention, kGamma);
  EXPECT_THAT(artifact.warnings(), Contains(HasSubstr("'sideways' is ignored")));
}

TEST_F(ArtifactTest, DrafterReplacesTheOwnHead) {
  const std::string dir = folder_.fresh();
  ASSERT_TRUE(write_test_artifact(dir, {.recipe = test_recipe("mlx")}).ok());
  TestRecipe drafter = test_recipe("w4");
  drafter.mtp_layout = MtpLayout::kDrafter;
  ASSERT_TRUE(write_test_artifact(dir + "/other", {.recipe = drafter}).ok());
  const auto artifact = Artifact::open(dir, {.drafter_dir = dir + "/other/drafter"});
  ASSERT_TRUE(artifact.ok()) << artifact.error().to_string();
  EXPECT_EQ(artifact->mtp_layout(), MtpLayout::kDrafter);
  EXPECT_THAT(artifact->warnings(), Contains(HasSubstr("drafter folder replaces")));
}

TEST_F(ArtifactTest, DeclaredHeadWithoutTensorsRunsPlain) {
  TestRecipe recipe = test_recipe("mlx");
  recipe.mtp_layout = MtpLayout::kNone;
  const Artifact artifact = written({.recipe = recipe});
  EXPECT_FALSE(artifact.has_mtp());
  EXPECT_THAT(artifact.warnings(), Contains(HasSubstr("runs without speculation")));
}

TEST_F(ArtifactTest, TiedHeadIsTheEmbedding) {
  const Artifact artifact = written({.tied = true});
  EXPECT_TRUE(artifact.head_is_embedding());
  EXPECT_EQ(artifact.find("language_model.lm_head.weight"), nullptr);
}

TEST_F(ArtifactTest, BothAxisOrdersOfPatchEmbedding) {
  const Artifact mlx = written({.vision = true});
  EXPECT_TRUE(mlx.has_vision());
  EXPECT_FALSE(mlx.find("vision_tower.patch_embed.proj.weight")->source_axes);
  const Artifact source = written({.vision = true, .recipe = test_recipe("source")});
  const StoredTensor* patch = source.find("vision_tower.patch_embed.proj.weight");
  EXPECT_TRUE(patch->source_axes);
  EXPECT_THAT(patch->parts[0].weight->shape, ::testing::ElementsAre(32, 3, 2, 4, 4));
}

TEST_F(ArtifactTest, SeveralShardsWithAndWithoutIndex) {
  TestRecipe recipe = test_recipe("mlx");
  recipe.shard_count = 3;
  EXPECT_EQ(written({.recipe = recipe}).files().size(), 3u);
  recipe.write_index = false;
  EXPECT_EQ(written({.recipe = recipe}).files().size(), 3u);
}

TEST_F(ArtifactTest, PassThroughTypesAreKept) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    TestRecipe recipe = test_recipe("mlx");
    recipe.float_type = type;
    recipe.a_log_type = DType::kF32;
    const Artifact artifact = written({.recipe = recipe});
    EXPECT_EQ(artifact.find("mtp.norm.weight")->format.float_type, type);
    const StoredTensor* a_log = artifact.find("language_model.model.layers.0.linear_attn.A_log");
    EXPECT_EQ(a_log->format.float_type, DType::kF32);
  }
}

TEST_F(DemoModel, IsRecognisedAsRawSource) {
  const auto artifact = Artifact::open(kDemo);
  ASSERT_TRUE(artifact.ok()) << artifact.error().to_string();
  EXPECT_EQ(artifact->target_layout(), TargetLayout::kSource);
  EXPECT_EQ(artifact->mtp_tensor_count(), 19u);
  EXPECT_EQ(artifact->target_norms().convention, kRaw);
  EXPECT_EQ(artifact->mtp_norms().convention, kRaw);
  EXPECT_THAT(artifact->target_norms().evidence, HasSubstr("layout:"));
  EXPECT_TRUE(artifact->has_vision());
  EXPECT_THAT(artifact->warnings(), IsEmpty());
}

std::pair<int, int> tally(const NormDecision& decision) {
  std::pair<int, int> votes;  // gamma, raw
  for (const NormVote& vote : decision.votes) {
    (vote.vote == kGamma ? votes.first : votes.second) += 1;
  }
  return votes;
}

// Spec 2.4 (4): in the demo model single vectors vote wrongly, the majorities are 13 : 8 and 6 : 1.
TEST_F(DemoModel, GammaVariantIsDecidedByMajority) {
  const Artifact artifact = converted(test_recipe("mlx"));
  EXPECT_EQ(artifact.target_norms().convention, kGamma);
  EXPECT_EQ(artifact.mtp_norms().convention, kGamma);
  EXPECT_EQ(tally(artifact.target_norms()), std::pair(13, 8));
  EXPECT_EQ(tally(artifact.mtp_norms()), std::pair(6, 1));
  EXPECT_THAT(artifact.target_norms().evidence, HasSubstr("statistics: 13 vectors"));
}

TEST_F(DemoModel, GroupsDecideSeparately) {
  TestRecipe recipe = test_recipe("mlx");
  recipe.mtp_norms = kRaw;
  const Artifact raw_head = converted(recipe);
  EXPECT_EQ(raw_head.target_norms().convention, kGamma);
  EXPECT_EQ(raw_head.mtp_norms().convention, kRaw);

  recipe.norms = kRaw;
  recipe.mtp_norms = kGamma;
  const Artifact raw_target = converted(recipe);
  EXPECT_EQ(raw_target.target_norms().convention, kRaw);
  EXPECT_EQ(raw_target.mtp_norms().convention, kGamma);
}

// 64-wide expert rows are not divided by 128: such banks stay bf16.
TEST_F(DemoModel, WidthsThatTheGroupDoesNotDivideStayFloat) {
  const Artifact artifact = converted(test_recipe("w4-all", 128));
  EXPECT_EQ(artifact.find("language_model.model.layers.0.mlp.switch_mlp.gate_proj.weight")->format,
            quant::affine(4, 128));
  EXPECT_EQ(artifact.find("language_model.model.layers.0.mlp.switch_mlp.down_proj.weight")->format,
            quant::float_format(DType::kBF16));
  EXPECT_TRUE(std::filesystem::exists(artifact.dir() + "/tokenizer.json"));
}

}  // namespace
}  // namespace lockstep::spec
