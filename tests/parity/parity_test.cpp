// SPDX-License-Identifier: Apache-2.0
// The contract over the demo model in three formats and over two odd synthetic geometries: every
// condition of verify/parity.h, at least 100,000 tokens in all, no difference.
#include "lockstep/verify/parity.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "lockstep/model/model.h"
#include "lockstep/ops/make_backend.h"
#include "lockstep/spec/test_artifact.h"
#include "lockstep/spec/weights.h"

namespace lockstep::verify {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kTokensPerModel = 20'500;  // five models: above 100,000

struct Subject {
  std::string name;
  std::string recipe;  // of spec::test_recipe
  std::string preset;  // empty: the demo model
};

// The name of a test case, instead of the bytes of the struct.
void PrintTo(const Subject& subject, std::ostream* out) {
  *out << subject.name;
}

// Lengths around the chunk grain and far from it; ids uniform, so nothing is easy to draft.
std::vector<Ids> random_prompts(std::int32_t vocab_size) {
  std::mt19937 random(11);
  std::vector<Ids> prompts;
  for (const int length : {1, 2, 63, 64, 65, 128, 200, 330}) {
    Ids ids;
    for (int i = 0; i < length; ++i) {
      ids.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab_size)));
    }
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

std::vector<Ids> golden_prompts() {
  const io::Json json = io::read_json_file("tests/golden/demo/text.json").value();
  std::vector<Ids> prompts;
  for (const io::Json& prompt : json.as_array()) {
    Ids ids;
    for (const io::Json& id : prompt.find("ids")->as_array()) {
      ids.push_back(static_cast<std::int32_t>(id.as_int()));
    }
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

class Parity : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("lockstep_parity_" + GetParam().name);
    fs::remove_all(dir_);
    const spec::TestRecipe recipe = spec::test_recipe(GetParam().recipe, group());
    if (GetParam().preset.empty()) {
      const auto demo = spec::Artifact::open("models/demo");
      ASSERT_TRUE(demo.ok()) << demo.error().to_string();
      const Status status = spec::write_converted_artifact(*demo, dir_.string(), recipe);
      ASSERT_TRUE(status.ok()) << status.error().to_string();
    } else {
      spec::TestArtifactOptions options;
      options.preset = GetParam().preset;
      options.recipe = recipe;
      const Status status = spec::write_test_artifact(dir_.string(), options);
      ASSERT_TRUE(status.ok()) << status.error().to_string();
    }
  }
  void TearDown() override { fs::remove_all(dir_); }

  static int group() { return GetParam().preset == "tiny-a" ? 32 : 64; }

  fs::path dir_;
};

TEST_P(Parity, NothingThatMustNotMatterChangesATokenOrALogprob) {
  auto artifact = spec::Artifact::open(dir_.string());
  ASSERT_TRUE(artifact.ok()) << artifact.error().to_string();
  ASSERT_TRUE(artifact->has_mtp());
  const bool demo = GetParam().preset.empty();
  const auto vocab_size =
      static_cast<std::int32_t>(demo ? 6100 : artifact->config().text.vocab_rows - 3);

  std::vector<std::unique_ptr<ops::Backend>> backends;
  std::vector<std::unique_ptr<model::Model>> models;
  std::vector<ParitySubject> subjects;
  for (const int threads : {1, 3}) {
    backends.push_back(ops::make_backend({.name = "cpu", .isa = {}, .threads = threads}).value());
    auto weights = spec::bind_weights(*artifact);
    ASSERT_TRUE(weights.ok()) << weights.error().to_string();
    models.push_back(
        model::Model::build(artifact->config(), std::move(weights).value(), *backends.back()));
    subjects.push_back({.label = std::to_string(threads) + " threads",
                        .model = models.back().get(),
                        .vocab_size = vocab_size,
                        .stop_ids = demo ? Ids{6076, 6074} : Ids{1, 2}});
  }

  std::vector<Ids> prompts = random_prompts(vocab_size);
  if (demo) {
    const auto golden = golden_prompts();
    prompts.insert(prompts.end(), golden.begin(), golden.end());
  }
  const auto report = run_parity(
      subjects, prompts, {.tokens_per_prompt = 40, .tokens_total = kTokensPerModel}, nullptr);
  ASSERT_TRUE(report.ok()) << report.error().to_string();
  EXPECT_GE(report->tokens_compared, kTokensPerModel);
  EXPECT_TRUE(report->differences.empty()) << to_json(*report).dump(2);
  EXPECT_GT(report->drafts_accepted, 0);
  EXPECT_LT(report->drafts_accepted, report->drafts_tried);
  RecordProperty("tokens_compared", static_cast<int>(report->tokens_compared));
}

INSTANTIATE_TEST_SUITE_P(Models, Parity,
                         ::testing::Values(Subject{"demo_bf16", "source", ""},
                                           Subject{"demo_w4", "w4", ""},
                                           Subject{"demo_mxfp4", "mxfp4", ""},
                                           Subject{"tiny_a", "w4", "tiny-a"},
                                           Subject{"tiny_b", "6bit", "tiny-b"}),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace lockstep::verify
