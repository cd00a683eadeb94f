// SPDX-License-Identifier: Apache-2.0
// The forward pass and the MTP head against values of independent implementations (transformers and
// PyTorch in float32; tests/golden/demo/manifest.json says how they were made).
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/decode/engine.h"
#include "lockstep/decode/runtime.h"
#include "lockstep/io/json.h"
#include "lockstep/io/safetensors.h"

namespace lockstep {
namespace {

const std::string kGolden = "tests/golden/demo/";

// manifest.json calls a relative norm of 1e-4 generous for float32; its second implementation
// agrees to 2e-6.
constexpr double kRelativeL2Max = 1e-4;

std::vector<float> floats(const io::SafetensorsFile& file, const std::string& name) {
  const io::TensorView* tensor = file.find(name);
  if (tensor == nullptr || tensor->dtype != DType::kF32) {
    ADD_FAILURE() << "golden tensor " << name << " is missing";
    return {};
  }
  std::vector<float> values(tensor->bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

double relative_l2(std::span<const float> found, std::span<const float> expected) {
  EXPECT_EQ(found.size(), expected.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    const double d = static_cast<double>(found[i]) - static_cast<double>(expected[i]);
    difference += d * d;
    norm += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return std::sqrt(difference / norm);
}

std::vector<std::int32_t> ids_of(const io::Json& array) {
  std::vector<std::int32_t> ids;
  for (const io::Json& id : array.as_array())
    ids.push_back(static_cast<std::int32_t>(id.as_int()));
  return ids;
}

io::Json json_file(const std::string& name) {
  return io::read_json_file(kGolden + name).value();
}

io::SafetensorsFile tensor_file(const std::string& name) {
  return io::SafetensorsFile::open(kGolden + name).value();
}

class Golden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto opened = decode::Runtime::open({.model_dir = "models/demo",
                                         .drafter_dir = {},
                                         .backend = {.name = GetParam(), .isa = {}}});
    ASSERT_TRUE(opened.ok()) << opened.error().to_string();
    runtime_ = std::move(opened).value();
  }

  model::Model& model() { return runtime_->model(); }
  ops::Backend& backend() { return runtime_->backend(); }

  // The prompt as one prefill segment on a fresh state.
  model::Hidden prefill(const std::vector<std::int32_t>& ids, ops::SequenceState& state,
                        const model::Trace& trace = nullptr) {
    ops::Batch batch;
    model::append_text_segment(batch, {.cls = ops::SegmentClass::kPrefill,
                                       .row_count = static_cast<std::int64_t>(ids.size()),
                                       .state = &state});
    return model().forward(batch, ids, trace);
  }

  std::unique_ptr<decode::Runtime> runtime_;
};

TEST_P(Golden, HiddenStatesOfEveryLayer) {
  const auto golden = tensor_file("hidden_states.safetensors");
  const auto ids = ids_of(*json_file("hidden_states.json").find("ids"));
  const auto state = model().make_state();
  std::size_t compared = 0;
  const auto hidden = prefill(ids, *state, [&](const std::string& name, const ops::Tensor& value) {
    EXPECT_LE(relative_l2(backend().host_view(value), floats(golden, name)), kRelativeL2Max)
        << name;
    ++compared;
  });
  EXPECT_EQ(compared, 2u + 2 * 8);
  const auto logits =
      backend().host_view(model().logits(ops::rows_of(hidden.normed, hidden.normed.rows - 1, 1)));
  EXPECT_LE(relative_l2(logits, floats(golden, "last_logits")), kRelativeL2Max);
}

TEST_P(Golden, LogitsOfEveryPrompt) {
  const auto golden = tensor_file("text_logits.safetensors");
  const io::Json prompts = json_file("text.json");
  for (const io::Json& prompt : prompts.as_array()) {
    const std::string& name = prompt.find("name")->as_string();
    backend().reset_scratch();
    const auto state = model().make_state();
    const auto hidden = prefill(ids_of(*prompt.find("ids")), *state);
    const auto logits =
        backend().host_view(model().logits(ops::rows_of(hidden.normed, hidden.normed.rows - 1, 1)));
    EXPECT_LE(relative_l2(logits, floats(golden, name + ".last_logits")), kRelativeL2Max) << name;
  }
}

TEST_P(Golden, MtpHeadAtEveryPositionAndThreeChainedDrafts) {
  const auto golden = tensor_file("mtp.safetensors");
  const io::Json cases = json_file("mtp.json");
  for (const io::Json& c : cases.find("cases")->as_array()) {
    const std::string& name = c.find("prompt")->as_string();
    const auto ids = ids_of(*c.find("ids"));
    const auto drafts = ids_of(*c.find("drafts"));
    backend().reset_scratch();
    const auto state = model().make_state();
    const auto hidden = prefill(ids, *state);
    EXPECT_LE(relative_l2(backend().host_view(hidden.normed), floats(golden, name + ".hidden_in")),
              kRelativeL2Max)
        << name;

    std::vector<std::int32_t> next(ids.begin() + 1, ids.end());
    next.push_back(static_cast<std::int32_t>(c.find("bonus_token")->as_int()));
    ops::Batch all;
    model::append_text_segment(
        all, {.row_count = static_cast<std::int64_t>(ids.size()), .state = state.get()});
    ops::Tensor out = model().mtp_forward(all, next, hidden.head_input);
    EXPECT_LE(relative_l2(backend().host_view(out), floats(golden, name + ".depth1_all.hidden")),
              kRelativeL2Max)
        << name;

    const auto chain_hidden = floats(golden, name + ".chain.hidden");
    const auto chain_logits = floats(golden, name + ".chain.logits");
    out = ops::rows_of(out, out.rows - 1, 1);
    for (std::size_t depth = 0; depth < 3; ++depth) {
      const auto logits = backend().host_view(model().logits(out));
      const auto width = logits.size();
      EXPECT_LE(
          relative_l2(backend().host_view(out), std::span(chain_hidden).subspan(depth * 256, 256)),
          kRelativeL2Max);
      EXPECT_LE(relative_l2(logits, std::span(chain_logits).subspan(depth * width, width)),
                kRelativeL2Max);
      EXPECT_EQ(decode::argmax(logits), drafts[depth]) << name << " depth " << depth + 1;
      ops::Batch one;
      model::append_text_segment(one, {.row_count = 1,
                                       .position = state->kv_length(model().mtp_layer()),
                                       .state = state.get()});
      out = model().mtp_forward(one, std::span(drafts).subspan(depth, 1), out);
    }
  }
}

TEST_P(Golden, PrimingLeavesTheSameHeadAsTheFullPass) {
  const auto ids = ids_of(*json_file("hidden_states.json").find("ids"));
  std::vector<float> results[2];
  for (const bool primed : {false, true}) {
    backend().reset_scratch();
    const auto state = model().make_state();
    const auto hidden = prefill(ids, *state);
    const std::vector<std::int32_t> next(ids.begin() + 1, ids.end());
    const auto rows = static_cast<std::int64_t>(next.size());
    ops::Batch batch;
    model::append_text_segment(batch, {.row_count = rows, .state = state.get()});
    const ops::Tensor pairs = ops::rows_of(hidden.head_input, 0, rows);
    if (primed) {
      model().mtp_prime(batch, next, pairs);
    } else {
      model().mtp_forward(batch, next, pairs);
    }
    ops::Batch last;
    model::append_text_segment(last, {.row_count = 1, .position = rows, .state = state.get()});
    const std::vector<std::int32_t> bonus = {378};
    const auto out = backend().host_view(
        model().mtp_forward(last, bonus, ops::rows_of(hidden.head_input, rows, 1)));
    results[primed ? 1 : 0].assign(out.begin(), out.end());
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(Golden, GreedyIdsOfEveryPromptAtEveryDepth) {
  const bool slow = std::string(GetParam()) == "reference";
  const io::Json prompts = json_file("text.json");
  for (const io::Json& prompt : prompts.as_array()) {
    const auto expected = ids_of(*prompt.find("greedy"));
    for (const int depth : slow ? std::vector<int>{3} : std::vector<int>{0, 1, 3, 8}) {
      decode::Engine engine(model(), runtime_->tokenizer().size(), {});
      decode::Request request;
      request.prompt = ids_of(*prompt.find("ids"));
      request.tokens_max = static_cast<std::int64_t>(expected.size());
      request.stop_ids = runtime_->stop_ids();
      request.draft_depth = depth;
      const auto id = engine.submit(request, nullptr).value();
      while (engine.step()) {
      }
      EXPECT_EQ(engine.take_outcome(id)->token_ids, expected)
          << prompt.find("name")->as_string() << " at depth " << depth;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Golden, ::testing::Values("cpu", "reference"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace lockstep
