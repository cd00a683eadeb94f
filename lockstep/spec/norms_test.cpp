// SPDX-License-Identifier: Apache-2.0
// Synthetic groups of gain vectors (spec 2.4 and section 9, test 4).
#include "lockstep/spec/norms.h"

#include <cstring>
#include <deque>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace lockstep::spec {
namespace {

using ::testing::HasSubstr;

const TensorRow* row_of(std::string_view ending) {
  for (const TensorRow& row : tensor_table()) {
    if (row.name.ends_with(ending)) return &row;
  }
  return nullptr;
}

// Vectors with given means.
class Vectors {
 public:
  Vectors& add(const char* row_name, float mean) {
    const std::vector<float> values = {mean - 0.25f, mean + 0.25f};
    auto& bytes = bytes_.emplace_back(8);
    std::memcpy(bytes.data(), values.data(), 8);
    views_.push_back(
        {.name = row_name, .dtype = DType::kF32, .shape = {2}, .bytes = bytes, .file = "f"});
    StoredTensor tensor;
    tensor.expected.row = row_of(row_name);
    tensor.expected.name = row_name;
    tensor.expected.shape = {2};
    tensor.format = quant::float_format(DType::kF32);
    tensor.parts.push_back({.weight = &views_.back()});
    tensors_.push_back(std::move(tensor));
    return *this;
  }

  NormOutcome decide(const NormHints& hints = {}) const {
    std::vector<const StoredTensor*> pointers;
    for (const StoredTensor& tensor : tensors_)
      pointers.push_back(&tensor);
    return decide_norms(pointers, hints);
  }

 private:
  std::deque<std::vector<std::byte>> bytes_;
  std::deque<io::TensorView> views_;
  std::deque<StoredTensor> tensors_;
};

constexpr const char* kBlockNorm = "input_layernorm.weight";
constexpr const char* kFusionNorm = "fc_norm_hidden.weight";
constexpr const char* kDeltaNorm = "linear_attn.norm.weight";

TEST(Norms, BlockNormsVoteAroundOneHalf) {
  EXPECT_EQ(Vectors().add(kBlockNorm, 0.1f).decide().decision.convention, NormConvention::kRaw);
  EXPECT_EQ(Vectors().add(kBlockNorm, 0.94f).decide().decision.convention, NormConvention::kGamma);
  EXPECT_EQ(Vectors().add(kFusionNorm, 0.94f).decide().decision.convention, NormConvention::kGamma);
}

// Trap T-4: raw final norms reach .9, shifted ones 1.9.
TEST(Norms, FinalNormsVoteAroundOneAndAHalf) {
  const TensorRow* final_row = nullptr;
  for (const TensorRow& row : tensor_table()) {
    if (row.gain == Gain::kFinal && row.scope == Scope::kModel) final_row = &row;
  }
  ASSERT_NE(final_row, nullptr);
  ASSERT_EQ(final_row->name, "norm.weight");
  // row_of finds the first row of that ending, which is the language model's final norm.
  const NormOutcome raw = Vectors().add("norm.weight", 0.9f).decide();
  EXPECT_EQ(raw.decision.votes.at(0).threshold, 1.5);
  EXPECT_EQ(raw.decision.convention, NormConvention::kRaw);
  EXPECT_EQ(Vectors().add("norm.weight", 1.9f).decide().decision.convention,
            NormConvention::kGamma);
}

TEST(Norms, MajorityOverrulesSingleVectors) {
  const NormOutcome outcome = Vectors()
                                  .add(kBlockNorm, 0.25f)
                                  .add(kBlockNorm, 0.9f)
                                  .add(kBlockNorm, 1.0f)
                                  .add("norm.weight", 1.2f)
                                  .add(kFusionNorm, 1.1f)
                                  .decide();
  EXPECT_EQ(outcome.decision.convention, NormConvention::kGamma);
  EXPECT_EQ(outcome.decision.evidence, "statistics: 3 vectors look like gamma, 2 like raw");
  EXPECT_EQ(outcome.decision.votes.size(), 5u);
  EXPECT_EQ(outcome.decision.votes[0].mean, 0.25);
  EXPECT_TRUE(outcome.warning.empty());
}

// Trap T-5.
TEST(Norms, DeltaNormHasNoVote) {
  const NormOutcome outcome =
      Vectors().add(kDeltaNorm, 1.0f).add(kDeltaNorm, 1.0f).add(kBlockNorm, 0.0f).decide();
  EXPECT_EQ(outcome.decision.votes.size(), 1u);
  EXPECT_EQ(outcome.decision.convention, NormConvention::kRaw);
}

TEST(Norms, LayoutComesBeforeStatisticsAndStatementsBeforeBoth) {
  NormHints hints;
  hints.raw_layout = "conv";
  const NormOutcome raw = Vectors().add(kBlockNorm, 1.0f).decide(hints);
  EXPECT_EQ(raw.decision.convention, NormConvention::kRaw);
  EXPECT_EQ(raw.decision.evidence, "layout: conv");
  EXPECT_THAT(raw.warning, HasSubstr("1 vectors look like gamma"));

  hints.stated_format = "mlx_gamma";
  hints.stated_in = "manifest.json";
  const NormOutcome stated = Vectors().add(kBlockNorm, 1.0f).decide(hints);
  EXPECT_EQ(stated.decision.convention, NormConvention::kGamma);
  EXPECT_EQ(stated.decision.evidence, "metadata: manifest.json says mlx_gamma");
}

TEST(Norms, TieFallsToGamma) {
  const NormOutcome outcome = Vectors().add(kBlockNorm, 0.0f).add(kBlockNorm, 1.0f).decide();
  EXPECT_EQ(outcome.decision.convention, NormConvention::kGamma);
  EXPECT_TRUE(outcome.warning.empty());
}

}  // namespace
}  // namespace lockstep::spec
