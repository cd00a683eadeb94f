// SPDX-License-Identifier: Apache-2.0
// delta, attend and SequenceState: against the reference, alone and in company, over random
// protocols of windows and rewinds.
#include <memory>

#include "lockstep/base/limits.h"
#include "lockstep/ops/mixer_test_data.h"

namespace lockstep::ops {
namespace {

TEST(Mixers, PrefillEqualsReference) {
  for (const Mixers& mixers : {demo_mixers(), odd_mixers()}) {
    expect_bitwise([&](Backend& backend) {
      const auto state = backend.make_state(mixers.shape());
      std::vector<float> out;
      for (const std::int64_t rows : {64, 128, 17}) {
        append(
            out,
            step(backend, mixers,
                 {.state = state.get(), .seed = 3, .cls = SegmentClass::kPrefill, .rows = rows}));
      }
      append(out, step(backend, mixers, {.state = state.get(), .seed = 3, .rows = 1}));
      return out;
    });
  }
}

TEST(Mixers, StepsEqualReference) {
  for (const Mixers& mixers : {demo_mixers(), odd_mixers()}) {
    expect_bitwise([&](Backend& backend) {
      const auto state = backend.make_state(mixers.shape());
      std::vector<float> out;
      for (const std::int64_t rows : {1, 1, 2, 9, 70, 1}) {
        append(out, step(backend, mixers, {.state = state.get(), .seed = 4, .rows = rows}));
      }
      return out;
    });
  }
}

// A random walk of segments and rewinds; the same walk for every back end.
std::vector<float> random_walk(Backend& backend, const Mixers& mixers, std::uint32_t seed) {
  Noise noise(seed);
  const auto state = backend.make_state(mixers.shape());
  std::vector<float> out;
  for (int i = 0; i < 12; ++i) {
    Rows run = {.state = state.get(), .seed = seed};
    const std::int64_t kind = noise.integer(0, 5);
    if (kind == 0) {
      run.cls = SegmentClass::kPrefill;
      run.rows = noise.integer(1, 90);
    } else {
      run.rows = noise.integer(1, limits::kWindowRowsMax);
      run.speculative = kind >= 2;
    }
    append(out, step(backend, mixers, run));
    if (run.speculative) {
      state->rewind(state->position() - noise.integer(0, run.rows));
      if (noise.integer(0, 3) == 0) {  // a second, deeper cut stays within the window
        state->rewind(state->position());
      }
    }
    EXPECT_EQ(state->kv_length(0), state->position());
    out.push_back(static_cast<float>(state->position()));
  }
  return out;
}

TEST(Mixers, RandomWindowsAndRewindsEqualReference) {
  for (std::uint32_t seed = 100; seed < 130; ++seed) {
    const Mixers mixers = seed % 3 == 0 ? demo_mixers() : odd_mixers();
    expect_bitwise([&](Backend& backend) { return random_walk(backend, mixers, seed); },
                   std::array{2});
  }
}

// The whole contract of a window: its rows equal plain steps, and after rewind(p) the sequence goes
// on as if only p rows had ever been seen.
TEST(Mixers, KeptRowsOfAWindowEqualPlainSteps) {
  const Mixers mixers = odd_mixers();
  for (const char* isa : {"reference", "cpu"}) {
    const auto backend = isa == std::string("cpu") ? cpu_backend("", 2) : reference_backend();
    for (std::int64_t rows = 1; rows <= limits::kWindowRowsMax; ++rows) {
      for (std::int64_t kept = 0; kept <= rows; ++kept) {
        const auto plain = backend->make_state(mixers.shape());
        const auto window = backend->make_state(mixers.shape());
        const Rows prompt = {.seed = 5, .cls = SegmentClass::kPrefill, .rows = 70};
        for (SequenceState* state : {plain.get(), window.get()}) {
          Rows run = prompt;
          run.state = state;
          step(*backend, mixers, run);
        }
        step(*backend, mixers,
             {.state = window.get(), .seed = 5, .rows = rows, .speculative = true});
        window->rewind(70 + kept);
        for (std::int64_t i = 0; i < kept; ++i) {
          step(*backend, mixers, {.state = plain.get(), .seed = 5, .rows = 1});
        }
        ASSERT_EQ(window->position(), plain->position());
        const Rows next = {.seed = 5, .rows = 2, .speculative = true};
        Rows a = next, b = next;
        a.state = plain.get();
        b.state = window.get();
        ASSERT_TRUE(same_bits(step(*backend, mixers, a), step(*backend, mixers, b)))
            << isa << ": window of " << rows << ", kept " << kept;
      }
    }
  }
}

TEST(Mixers, WindowRowsEqualSingleSteps) {
  const Mixers mixers = odd_mixers();
  for (const std::string& isa : present_isas()) {
    const auto backend = cpu_backend(isa, 3);
    const auto one = backend->make_state(mixers.shape());
    const auto nine = backend->make_state(mixers.shape());
    std::vector<float> delta, attention;
    const auto delta_width = static_cast<std::size_t>(mixers.delta.shape.v_channels());
    for (int i = 0; i < 9; ++i) {
      const std::vector<float> row =
          step(*backend, mixers, {.state = one.get(), .seed = 6, .rows = 1});
      delta.insert(delta.end(), row.begin(), row.begin() + static_cast<long>(delta_width));
      attention.insert(attention.end(), row.begin() + static_cast<long>(delta_width), row.end());
    }
    append(delta, attention);
    EXPECT_TRUE(same_bits(
        delta,
        step(*backend, mixers, {.state = nine.get(), .seed = 6, .rows = 9, .speculative = true})))
        << isa;
  }
}

// Both classes, several sequences, one batch: nobody notices the others.
TEST(Mixers, SequencesDoNotNoticeEachOther) {
  for (const Mixers& mixers : {demo_mixers(), odd_mixers()}) {
    for (const std::string& isa : present_isas()) {
      const auto alone = cpu_backend(isa, 1);
      const auto together = cpu_backend(isa, 3);
      const std::vector<Rows> runs = {
          {.seed = 1, .cls = SegmentClass::kPrefill, .rows = 100},
          {.seed = 2, .rows = 1},
          {.seed = 3, .rows = 5, .speculative = true},
          {.seed = 4, .cls = SegmentClass::kPrefill, .rows = 3},
          {.seed = 5, .rows = 33},
      };
      std::vector<std::unique_ptr<SequenceState>> states[2];
      std::vector<Rows> batch = runs;
      for (std::size_t i = 0; i < runs.size(); ++i) {
        states[0].push_back(alone->make_state(mixers.shape()));
        states[1].push_back(together->make_state(mixers.shape()));
        batch[i].state = states[1][i].get();
      }
      for (int round = 0; round < 2; ++round) {
        const std::vector<std::vector<float>> found = step(*together, mixers, batch);
        for (std::size_t i = 0; i < runs.size(); ++i) {
          Rows run = runs[i];
          run.state = states[0][i].get();
          EXPECT_TRUE(same_bits(step(*alone, mixers, run), found[i])) << isa << ", run " << i;
          if (run.speculative) {
            states[0][i]->rewind(states[0][i]->position() - 2);
            states[1][i]->rewind(states[1][i]->position() - 2);
          }
        }
      }
    }
  }
}

// Chunks of the delta rule lie at multiples of 64, so cuts at such multiples change nothing.
TEST(Mixers, PrefillDoesNotDependOnItsCuts) {
  const Mixers mixers = demo_mixers();
  const auto backend = cpu_backend("", 2);
  std::vector<float> last[2];
  const std::vector<std::int64_t> cuts[2] = {{200}, {64, 128, 8}};
  for (int i = 0; i < 2; ++i) {
    const auto state = backend->make_state(mixers.shape());
    for (const std::int64_t rows : cuts[i]) {
      step(*backend, mixers,
           {.state = state.get(), .seed = 7, .cls = SegmentClass::kPrefill, .rows = rows});
    }
    last[i] = step(*backend, mixers, {.state = state.get(), .seed = 7, .rows = 4});
  }
  EXPECT_TRUE(same_bits(last[0], last[1]));
}

}  // namespace
}  // namespace lockstep::ops
