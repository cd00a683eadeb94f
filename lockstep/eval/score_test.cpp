// SPDX-License-Identifier: Apache-2.0
#include "lockstep/eval/score.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/io/json.h"
#include "lockstep/io/safetensors.h"
#include "lockstep/ops/make_backend.h"
#include "lockstep/spec/test_artifact.h"
#include "lockstep/spec/weights.h"

namespace lockstep::eval {
namespace {

using Ids = std::vector<std::int32_t>;

// A model of one folder, without tokenizer.
struct Opened {
  explicit Opened(const std::string& dir)
      : artifact(spec::Artifact::open(dir).value()),
        backend(ops::make_backend({}).value()),
        model(model::Model::build(artifact.config(), spec::bind_weights(artifact).value(),
                                  *backend)) {}
  spec::Artifact artifact;
  std::unique_ptr<ops::Backend> backend;
  std::unique_ptr<model::Model> model;
};

// Logits of all rows of one window, in one pass.
std::vector<float> window_logits(const model::Model& model, const Ids& ids) {
  model.backend().reset_scratch();
  const auto state = model.make_state();
  ops::Batch batch;
  model::append_text_segment(batch, {.cls = ops::SegmentClass::kPrefill,
                                     .row_count = static_cast<std::int64_t>(ids.size()),
                                     .state = state.get()});
  const auto view = model.backend().host_view(model.logits(model.forward(batch, ids).normed));
  return {view.begin(), view.end()};
}

// Softmax as a textbook has it, in long double.
std::vector<long double> softmax(const float* logits, std::size_t count) {
  std::vector<long double> p(count);
  long double sum = 0;
  for (std::size_t i = 0; i < count; ++i)
    sum += p[i] = std::exp(static_cast<long double>(logits[i]));
  for (long double& x : p)
    x /= sum;
  return p;
}

class TinyModels : public ::testing::Test {
 protected:
  static constexpr std::int32_t kVocab = 120;  // of 131 rows; the others are padding

  void SetUp() override {
    for (const std::uint64_t seed : {1, 2}) {
      const std::string dir = folder_.fresh();
      spec::TestArtifactOptions options;
      options.seed = seed;
      const Status status = spec::write_test_artifact(dir, options);
      ASSERT_TRUE(status.ok()) << status.error().to_string();
      (seed == 1 ? one_ : two_).emplace(dir);
    }
  }
  const model::Model& one() const { return *one_->model; }
  const model::Model& two() const { return *two_->model; }
  static Ids some_ids(int count) {
    Ids ids;
    for (int i = 0; i < count; ++i)
      ids.push_back((i * 37 + i / 5 * 11) % kVocab);
    return ids;
  }

  spec::TestFolder folder_;
  std::optional<Opened> one_, two_;
};

TEST_F(TinyModels, FiguresAreThoseOfTheDefinition) {
  const Ids ids = some_ids(90);
  const auto p = window_logits(one(), ids);
  const auto q = window_logits(two(), ids);
  const auto width = static_cast<std::size_t>(one().config().vocab_rows);
  const auto score = eval::score(one(), &two(), kVocab, ids, {.keep_positions = true});
  ASSERT_TRUE(score.ok()) << score.error().to_string();
  ASSERT_EQ(score->tokens, 89);
  long double nll = 0, kl = 0, kl_max = 0;
  int equal = 0;
  for (std::size_t r = 0; r + 1 < ids.size(); ++r) {
    const auto mine = softmax(&p[r * width], kVocab);
    const auto other = softmax(&q[r * width], kVocab);
    const long double logprob = std::log(mine[static_cast<std::size_t>(ids[r + 1])]);
    long double divergence = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      divergence += other[i] * std::log(other[i] / mine[i]);
    }
    const bool same = std::max_element(mine.begin(), mine.end()) - mine.begin() ==
                      std::max_element(other.begin(), other.end()) - other.begin();
    // Both sum some hundred terms in double or better; a relative 1e-11 is 4e4 double epsilons.
    constexpr double kSumError = 1e-11;
    const Position& position = score->positions[r];
    EXPECT_EQ(position.index, static_cast<std::int64_t>(r) + 1);
    EXPECT_NEAR(position.logprob, static_cast<double>(logprob), kSumError * 10);
    EXPECT_NEAR(position.divergence, static_cast<double>(divergence), kSumError * 10);
    EXPECT_EQ(position.top1_equal, same);
    nll -= logprob;
    kl += divergence;
    kl_max = std::max(kl_max, divergence);
    equal += same ? 1 : 0;
  }
  EXPECT_NEAR(score->nll(), static_cast<double>(nll / 89), 1e-9);     // of 89 values at 1e-10 each
  EXPECT_NEAR(score->kl_mean(), static_cast<double>(kl / 89), 1e-9);  // the same
  EXPECT_NEAR(score->kl_max, static_cast<double>(kl_max), 1e-9);      // the same
  EXPECT_GT(score->kl_max, 0.0);
  EXPECT_DOUBLE_EQ(score->top1_agreement(), equal / 89.0);
  EXPECT_DOUBLE_EQ(score->perplexity(), std::exp(score->nll()));
}

TEST_F(TinyModels, WindowsAreIndependentAndFirstTokensAreNotScored) {
  const Ids ids = some_ids(205);
  const auto all = eval::score(one(), nullptr, kVocab, ids, {.window = 50, .keep_positions = true});
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->tokens, 4 * 49 + 4);
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < ids.size(); begin += 50) {
    const Ids window(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                     ids.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 50, ids.size())));
    const auto alone = eval::score(one(), nullptr, kVocab, window, {.keep_positions = true});
    ASSERT_TRUE(alone.ok());
    for (const Position& position : alone->positions) {
      EXPECT_EQ(all->positions[at].index, position.index + static_cast<std::int64_t>(begin));
      EXPECT_EQ(all->positions[at++].logprob, position.logprob);  // bit for bit
    }
  }
  EXPECT_EQ(at, all->positions.size());
}

TEST_F(TinyModels, ALastWindowOfOneTokenScoresNothing) {
  const auto score = eval::score(one(), nullptr, kVocab, some_ids(101), {.window = 100});
  ASSERT_TRUE(score.ok());
  EXPECT_EQ(score->tokens, 99);
}

TEST_F(TinyModels, WindowsLongerThanOnePassGiveTheSameRows) {
  const Ids ids = some_ids(700);
  const auto score = eval::score(one(), nullptr, kVocab, ids, {.window = 700});
  ASSERT_TRUE(score.ok());
  ASSERT_EQ(score->tokens, 699);
  const auto logits = window_logits(one(), ids);
  const auto width = static_cast<std::size_t>(one().config().vocab_rows);
  long double nll = 0;
  for (std::size_t r = 0; r + 1 < ids.size(); ++r) {
    nll -= std::log(softmax(&logits[r * width], kVocab)[static_cast<std::size_t>(ids[r + 1])]);
  }
  EXPECT_NEAR(score->nll(), static_cast<double>(nll / 699), 1e-9);  // 699 values at 1e-10 each
}

TEST_F(TinyModels, SumsOfTextsAdd) {
  const auto a = eval::score(one(), &two(), kVocab, some_ids(20), {});
  const auto b = eval::score(one(), &two(), kVocab, some_ids(31), {});
  ASSERT_TRUE(a.ok() && b.ok());
  Score both = *a;
  both.add(*b);
  EXPECT_EQ(both.tokens, 49);
  EXPECT_DOUBLE_EQ(both.nll(), (a->nll() * 19 + b->nll() * 30) / 49);
  EXPECT_DOUBLE_EQ(both.kl_max, std::max(a->kl_max, b->kl_max));
}

TEST_F(TinyModels, RefusesWhatItCantScore) {
  const auto code = [&](const Ids& ids, std::int64_t window) {
    const auto score = eval::score(one(), nullptr, kVocab, ids, {.window = window});
    return score.ok() ? std::string("ok") : error_code_name(score.error().code);
  };
  EXPECT_EQ(code({}, 512), "invalid_argument");
  EXPECT_EQ(code({5}, 512), "invalid_argument");
  EXPECT_EQ(code({5, kVocab}, 512), "invalid_argument");
  EXPECT_EQ(code({5, -1}, 512), "invalid_argument");
  EXPECT_EQ(code({5, 6}, 1), "invalid_argument");
  EXPECT_EQ(code({5, 6}, one().config().context_tokens_max + 1), "limit");
  EXPECT_EQ(code({5, 6}, one().config().context_tokens_max), "ok");
}

TEST_F(TinyModels, CanBeStopped) {
  std::vector<std::int64_t> seen;
  const auto score =
      eval::score(one(), nullptr, kVocab, some_ids(1500), {.window = 512}, [&](std::int64_t done) {
        seen.push_back(done);
        return done < 1000;
      });
  ASSERT_FALSE(score.ok());
  EXPECT_EQ(score.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(seen, (std::vector<std::int64_t>{512, 1024}));
}

// Logits after each golden prompt, by another implementation in float32.
TEST(Score, LogprobOfTheGoldenContinuation) {
  const Opened demo("models/demo");
  const auto file = io::SafetensorsFile::open("tests/golden/demo/text_logits.safetensors").value();
  const io::Json prompts = io::read_json_file("tests/golden/demo/text.json").value();
  constexpr std::int32_t kVocab = 6100;  // the tokenizer's; 6144 rows
  for (const io::Json& prompt : prompts.as_array()) {
    const std::string name = prompt.find("name")->as_string();
    Ids ids;
    for (const io::Json& id : prompt.find("ids")->as_array()) {
      ids.push_back(static_cast<std::int32_t>(id.as_int()));
    }
    ids.push_back(static_cast<std::int32_t>(prompt.find("greedy")->as_array()[0].as_int()));
    const io::TensorView* golden = file.find(name + ".last_logits");
    ASSERT_NE(golden, nullptr);
    std::vector<float> logits(golden->bytes.size() / sizeof(float));
    std::memcpy(logits.data(), golden->bytes.data(), golden->bytes.size());
    double norm = 0;
    for (const float x : logits)
      norm += static_cast<double>(x) * static_cast<double>(x);
    const double expected = static_cast<double>(
        std::log(softmax(logits.data(), kVocab)[static_cast<std::size_t>(ids.back())]));
    const auto score = eval::score(*demo.model, nullptr, kVocab, ids, {.keep_positions = true});
    ASSERT_TRUE(score.ok()) << score.error().to_string();
    // Logits are within a relative norm of 1e-4 (the golden manifest), so none is further off than
    // that times the norm; log-softmax at most doubles the largest error.
    EXPECT_NEAR(score->positions.back().logprob, expected, 2e-4 * std::sqrt(norm)) << name;
  }
}

}  // namespace
}  // namespace lockstep::eval
