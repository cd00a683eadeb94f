// SPDX-License-Identifier: Apache-2.0
// The same random model under different layouts must bind to the same values.
#include "lockstep/spec/weights.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "lockstep/quant/codec.h"
#include "lockstep/quant/quantize.h"
#include "lockstep/spec/test_artifact.h"

namespace lockstep::spec {
namespace {

using ::testing::HasSubstr;

std::vector<float> decoded(const quant::MatrixView& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.cols));
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    quant::dequantize_row(matrix, row, values.data() + row * matrix.cols);
  }
  return values;
}

void expect_equal(const quant::MatrixView& a, const quant::MatrixView& b) {
  ASSERT_EQ(a.rows, b.rows);
  ASSERT_EQ(a.cols, b.cols);
  EXPECT_EQ(decoded(a), decoded(b));
}

void expect_equal(const MoeWeights& a, const MoeWeights& b) {
  expect_equal(a.router, b.router);
  expect_equal(a.shared_gate, b.shared_gate);
  expect_equal(a.shared_expert_gate, b.shared_expert_gate);
  expect_equal(a.shared_expert_down, b.shared_expert_down);
  ASSERT_EQ(a.gate.size(), b.gate.size());
  for (std::size_t e = 0; e < a.gate.size(); ++e) {
    expect_equal(a.gate[e], b.gate[e]);
    expect_equal(a.up[e], b.up[e]);
    expect_equal(a.down[e], b.down[e]);
  }
}

void expect_equal(const LayerWeights& a, const LayerWeights& b) {
  ASSERT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.input_norm, b.input_norm);
  EXPECT_EQ(a.post_norm, b.post_norm);
  expect_equal(a.moe, b.moe);
  if (a.kind == LayerKind::kDelta) {
    expect_equal(a.delta.qkv, b.delta.qkv);
    expect_equal(a.delta.out, b.delta.out);
    EXPECT_EQ(a.delta.conv, b.delta.conv);
    EXPECT_EQ(a.delta.a_log, b.delta.a_log);
    EXPECT_EQ(a.delta.norm, b.delta.norm);
  } else {
    expect_equal(a.attention.q, b.attention.q);
    expect_equal(a.attention.o, b.attention.o);
    EXPECT_EQ(a.attention.q_norm, b.attention.q_norm);
  }
}

void expect_equal(const Weights& a, const Weights& b) {
  expect_equal(a.embedding, b.embedding);
  expect_equal(a.head, b.head);
  EXPECT_EQ(a.final_norm, b.final_norm);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (std::size_t i = 0; i < a.layers.size(); ++i)
    expect_equal(a.layers[i], b.layers[i]);
  ASSERT_EQ(a.mtp.has_value(), b.mtp.has_value());
  if (!a.mtp) return;
  expect_equal(a.mtp->fc, b.mtp->fc);
  EXPECT_EQ(a.mtp->norm, b.mtp->norm);
  EXPECT_EQ(a.mtp->norm_embedding, b.mtp->norm_embedding);
  expect_equal(a.mtp->layer, b.mtp->layer);
}

class WeightsTest : public ::testing::Test {
 protected:
  Artifact written(const TestArtifactOptions& options) {
    const std::string dir = folder_.fresh();
    const Status status = write_test_artifact(dir, options);
    CHECK_MSG(status.ok(), status.ok() ? "" : status.error().to_string().c_str());
    OpenOptions open;
    if (options.recipe.mtp_layout == MtpLayout::kDrafter) open.drafter_dir = dir + "/drafter";
    return Artifact::open(dir, open).value();
  }

  std::string bind_error(const TestRecipe& recipe) {
    const Artifact artifact = written({.recipe = recipe});
    const auto weights = bind_weights(artifact);
    return weights.ok() ? "no error" : weights.error().to_string();
  }

  TestFolder folder_;
};

// Raw norms everywhere, so that no rounding of 1 + w stands between the layouts.
TEST_F(WeightsTest, SameValuesFromEveryLayout) {
  TestRecipe reference_recipe = test_recipe("source");
  const Artifact reference = written({.recipe = reference_recipe});
  const Weights expected = bind_weights(reference).value();
  ASSERT_EQ(expected.layers.size(), 5u);
  ASSERT_EQ(expected.layers[0].moe.gate.size(), 7u);

  for (const ExpertSpelling spelling :
       {ExpertSpelling::kSplit, ExpertSpelling::kSwitch, ExpertSpelling::kFused}) {
    for (const MtpLayout layout : {MtpLayout::kNested, MtpLayout::kSideFile, MtpLayout::kDrafter}) {
      TestRecipe recipe = test_recipe("source");
      recipe.layout = TargetLayout::kMlx;
      recipe.experts = recipe.mtp_experts = spelling;
      recipe.mtp_layout = layout;
      const Artifact artifact = written({.recipe = recipe});
      const auto weights = bind_weights(artifact);
      ASSERT_TRUE(weights.ok()) << weights.error().to_string();
      expect_equal(*weights, expected);
    }
  }
}

// A quantised fused bank is cut into the same experts as three quantised switch banks.
TEST_F(WeightsTest, QuantizedBanksAreCutPerExpert) {
  TestRecipe recipe = test_recipe("w4-all", 32);
  recipe.mtp_layout = MtpLayout::kSideFile;
  recipe.manifest = R"({"rmsnorm_weight_format": "mlx_gamma"})";
  const Artifact whole = written({.recipe = recipe});
  recipe.mtp_experts = ExpertSpelling::kFused;
  const Artifact fused = written({.recipe = recipe});
  recipe.mtp_experts = ExpertSpelling::kSplit;
  const Artifact split = written({.recipe = recipe});
  const Weights expected = bind_weights(whole).value();
  ASSERT_EQ(expected.mtp->layer.moe.up[3].format, quant::affine(4, 32));
  expect_equal(bind_weights(fused).value(), expected);
  expect_equal(bind_weights(split).value(), expected);
}

TEST_F(WeightsTest, GainsBecomeGamma) {
  const Artifact raw = written({.recipe = test_recipe("source")});
  TestRecipe gamma_recipe = test_recipe("mlx");
  gamma_recipe.float_type = DType::kF32;
  const Artifact gamma = written({.recipe = gamma_recipe});
  ASSERT_EQ(raw.target_norms().convention, NormConvention::kRaw);
  ASSERT_EQ(gamma.target_norms().convention, NormConvention::kGamma);
  const Weights from_raw = bind_weights(raw).value();
  const Weights from_gamma = bind_weights(gamma).value();
  // Raw is stored in bf16: 8 bits of w, whose magnitude stays below 1.
  const float bound = 0x1p-8f;
  const auto near = [&](const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], bound);
  };
  near(from_raw.final_norm, from_gamma.final_norm);
  near(from_raw.layers[0].input_norm, from_gamma.layers[0].input_norm);
  near(from_raw.layers[1].attention.k_norm, from_gamma.layers[1].attention.k_norm);
  near(from_raw.mtp->norm_hidden, from_gamma.mtp->norm_hidden);
  // Trap T-5: stored near one, and not shifted.
  near(from_raw.layers[0].delta.norm, from_gamma.layers[0].delta.norm);
  for (const float value : from_raw.layers[0].delta.norm)
    EXPECT_LT(value, 1.9f);
  // The sum is taken in float32, not in the stored type.
  const StoredTensor* stored = raw.find("language_model.model.norm.weight");
  for (std::size_t i = 0; i < from_raw.final_norm.size(); ++i) {
    EXPECT_EQ(from_raw.final_norm[i], stored->values()[i] + 1.0f);
  }
}

TEST_F(WeightsTest, ShapesOfTinyB) {
  const Artifact artifact = written({.preset = "tiny-b"});
  const Weights weights = bind_weights(artifact).value();
  const TextConfig& text = artifact.config().text;
  EXPECT_EQ(weights.layers[3].kind, LayerKind::kAttention);
  EXPECT_EQ(weights.layers[3].attention.q.rows, 2 * text.query_heads * text.head_dim);
  EXPECT_EQ(weights.layers[0].delta.qkv.rows, text.conv_channels());
  EXPECT_EQ(weights.layers[0].moe.shared_gate.rows, 1);
  EXPECT_EQ(weights.layers[0].moe.down[7].cols, text.expert_hidden);
  EXPECT_EQ(weights.mtp->fc.cols, 2 * text.hidden);
  EXPECT_EQ(weights.head.rows, 259);
}

TEST_F(WeightsTest, TiedHeadViewsTheEmbedding) {
  const Artifact artifact = written({.tied = true});
  const Weights weights = bind_weights(artifact).value();
  EXPECT_EQ(weights.head.codes, weights.embedding.codes);
}

TEST_F(WeightsTest, ViewsAreNotCopies) {
  const Artifact artifact = written({});
  const Weights weights = bind_weights(artifact).value();
  const StoredTensor* stored = artifact.find("language_model.model.embed_tokens.weight");
  EXPECT_EQ(weights.embedding.codes, stored->parts[0].weight->bytes.data());
}

// Puts a 16-bit pattern, or a byte, into the last place of one tensor.
TestRecipe damaged(TestRecipe recipe, const std::string& name, std::vector<std::byte> pattern) {
  recipe.edit = [name, pattern](io::TensorData& tensor) {
    if (tensor.name != name) return;
    CHECK(tensor.bytes.size() >= pattern.size());
    std::copy(pattern.begin(), pattern.end(),
              tensor.bytes.end() - static_cast<long>(pattern.size()));
  };
  return recipe;
}

TEST_F(WeightsTest, ValuesThatAreNotFiniteAreRefusedByName) {
  const std::vector<std::byte> nan = {std::byte{0xc0}, std::byte{0x7f}};
  const std::vector<std::byte> infinity = {std::byte{0x80}, std::byte{0xff}};
  const std::vector<std::byte> largest = {std::byte{0x7f}, std::byte{0x7f}};
  const std::string module = "language_model.model.layers.2.mlp.switch_mlp.down_proj";
  const TestRecipe affine = test_recipe("w4", 32);
  EXPECT_THAT(bind_error(damaged(affine, module + ".scales", nan)),
              HasSubstr("tensor '" + module + ".scales' holds NaN"));
  EXPECT_THAT(bind_error(damaged(affine, module + ".biases", infinity)),
              HasSubstr("tensor '" + module + ".biases' holds NaN"));
  EXPECT_EQ(bind_error(damaged(affine, module + ".scales", largest)), "no error");
  EXPECT_THAT(bind_error(damaged(affine, "mtp.layers.0.self_attn.q_proj.scales", {std::byte{255}})),
              HasSubstr("tensor 'mtp.layers.0.self_attn.q_proj.scales' holds the scale byte 255"));
  EXPECT_THAT(bind_error(damaged(affine, "language_model.model.layers.0.linear_attn.A_log", nan)),
              HasSubstr("A_log' holds NaN"));
  EXPECT_THAT(bind_error(damaged(affine, "mtp.norm.weight", infinity)),
              HasSubstr("mtp.norm.weight' holds NaN"));
  EXPECT_THAT(
      bind_error(damaged(test_recipe("mxfp4"), "language_model.lm_head.scales", {std::byte{255}})),
      HasSubstr("lm_head.scales' holds the scale byte 255"));
}

TEST_F(WeightsTest, DemoModelBinds) {
  const auto artifact = Artifact::open("models/demo");
  ASSERT_TRUE(artifact.ok());
  const auto weights = bind_weights(*artifact);
  ASSERT_TRUE(weights.ok()) << weights.error().to_string();
  EXPECT_EQ(weights->layers.size(), 8u);
  EXPECT_TRUE(weights->mtp.has_value());
  EXPECT_EQ(weights->layers[0].moe.gate.size(), 24u);
}

}  // namespace
}  // namespace lockstep::spec
