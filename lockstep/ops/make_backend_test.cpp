// SPDX-License-Identifier: Apache-2.0
#include "lockstep/ops/make_backend.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/limits.h"
#include "lockstep/ops/mixer_test_data.h"

namespace lockstep::ops {
namespace {

using testing::HasSubstr;

BackendOptions options(const std::string& name) {
  BackendOptions o;
  o.name = name;
  return o;
}

TEST(MakeBackend, NamesWhatItMade) {
  const auto reference = make_backend(options("reference"));
  ASSERT_TRUE(reference.ok());
  EXPECT_EQ((*reference)->name(), "reference");
  EXPECT_EQ((*reference)->precision(), "f32");
  for (const std::string& isa : present_isas())
    EXPECT_EQ(cpu_backend(isa, 1)->isa(), isa);
  const auto widest = make_backend({});
  ASSERT_TRUE(widest.ok());
  EXPECT_EQ((*widest)->name(), "cpu");
}

TEST(MakeBackend, UnknownNamesListTheKnown) {
  const auto no_backend = make_backend(options("gpu"));
  ASSERT_FALSE(no_backend.ok());
  EXPECT_EQ(no_backend.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(no_backend.error().message, HasSubstr("'gpu'; choose one of: cpu, reference"));
  BackendOptions o;
  o.precision = "fp64";
  const auto no_precision = make_backend(o);
  ASSERT_FALSE(no_precision.ok());
  EXPECT_THAT(no_precision.error().message, HasSubstr("f32"));
  o = {};
  o.isa = "sse9";
  const auto no_isa = make_backend(o);
  ASSERT_FALSE(no_isa.ok());
  EXPECT_THAT(no_isa.error().message, HasSubstr("scalar"));
}

TEST(MakeBackend, ThreadCountHasLimits) {
  for (const int threads : {-1, limits::kThreadsMax + 1}) {
    BackendOptions o;
    o.threads = threads;
    const auto backend = make_backend(o);
    ASSERT_FALSE(backend.ok());
    EXPECT_EQ(backend.error().code, ErrorCode::kLimit);
  }
}

TEST(MakeBackend, EnvironmentForcesAnInstructionSet) {
  ASSERT_EQ(setenv("LOCKSTEP_ISA", "scalar", 1), 0);
  const auto forced = make_backend({});
  BackendOptions o;
  o.isa = present_isas().back();
  const auto chosen = make_backend(o);
  ASSERT_EQ(setenv("LOCKSTEP_ISA", "mmx", 1), 0);
  const auto wrong = make_backend({});
  unsetenv("LOCKSTEP_ISA");
  ASSERT_TRUE(forced.ok());
  EXPECT_EQ((*forced)->isa(), "scalar");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ((*chosen)->isa(), o.isa);  // the option goes before the environment
  EXPECT_FALSE(wrong.ok());
}

class Protocol : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    backend = GetParam() == std::string("cpu") ? cpu_backend("", 1) : reference_backend();
    state = backend->make_state(mixers.shape());
    step(*backend, mixers, {.state = state.get(), .seed = 1, .rows = 2});
    step(*backend, mixers, {.state = state.get(), .seed = 1, .rows = 3, .speculative = true});
  }
  Mixers mixers = odd_mixers();
  std::unique_ptr<Backend> backend;
  std::unique_ptr<SequenceState> state;
};

TEST_P(Protocol, RewindReachesTheWindowOnly) {
  EXPECT_EQ(state->position(), 5);
  state->rewind(4);
  state->rewind(2);
  EXPECT_EQ(state->position(), 2);
  EXPECT_EQ(state->kv_length(0), 2);
  EXPECT_DEATH(state->rewind(1), "only rows of the last speculative window");
  EXPECT_DEATH(state->rewind(3), "CHECK|position");
}

TEST_P(Protocol, TheTargetsCacheIsCutByRewindAlone) {
  EXPECT_DEATH(state->truncate_kv(0, 1), "is_target");
  state->truncate_kv(1, 0);
}

TEST_P(Protocol, RowsMustFollowThePosition) {
  Batch batch;
  batch.rows = 1;
  batch.coordinates = {9, 9, 9};
  batch.segments = {{.cls = SegmentClass::kStep,
                     .row_begin = 0,
                     .row_count = 1,
                     .position = 9,
                     .state = state.get(),
                     .speculative = false}};
  const Tensor in = backend->scratch(1, delta_projected_width(mixers.delta.shape));
  const Tensor out = backend->scratch(1, mixers.delta.shape.v_channels());
  EXPECT_DEATH(backend->delta(batch, 0, mixers.delta, in, out), "position");
}

TEST_P(Protocol, WindowsHaveALimit) {
  EXPECT_DEATH(step(*backend, mixers,
                    {.state = state.get(),
                     .seed = 1,
                     .rows = limits::kWindowRowsMax + 1,
                     .speculative = true}),
               "kWindowRowsMax");
}

TEST_P(Protocol, BytesGrowWithTheCache) {
  const std::size_t before = state->bytes();
  EXPECT_GT(before, 0u);
  step(*backend, mixers,
       {.state = state.get(), .seed = 1, .cls = SegmentClass::kPrefill, .rows = 200});
  EXPECT_GT(state->bytes(), before);
}

INSTANTIATE_TEST_SUITE_P(Both, Protocol, testing::Values("reference", "cpu"));

}  // namespace
}  // namespace lockstep::ops
