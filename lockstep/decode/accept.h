// SPDX-License-Identifier: Apache-2.0
// The acceptance rule: which of a round's tokens stand. A pure function, so that it can be tested
// and fuzzed apart from any model.
//
// A round feeds the last token b and drafts d[0..D-1]; picks[j] is the target's own choice after b,
// d[0..j-1]. A draft stands iff it equals the target's pick at its place; the first pick that
// differs replaces it; if all stand, picks[D] comes on top. Stops and caps cut before commit.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace lockstep::decode {

enum class Finish : std::uint8_t {
  kNone,       // goes on
  kStopToken,  // an end-of-turn id; it is the last emitted token
  kStopText,   // a stop string was completed by the last emitted token
  kLength,     // the cap on tokens
};

struct AcceptInput {
  std::span<const std::int32_t> drafts;    // D ids
  std::span<const std::int32_t> picks;     // at least up to and with the first that differs
  std::int64_t tokens_left = 0;            // >= 1: tokens that may still be emitted
  std::span<const std::int32_t> stop_ids;  // end the answer when emitted
  // Sees every emitted token but stop ids once, in order; true ends the answer after that token.
  std::function<bool(std::int32_t)> text_stops;
};

struct Accepted {
  int emitted = 0;   // picks[0..emitted-1] are committed; also the fed rows that stay valid
  int accepted = 0;  // leading drafts among them
  int tried = 0;     // drafts whose predecessors all stood and that lie before the stop or cap
  Finish finish = Finish::kNone;
};

Accepted accept(const AcceptInput& input);

}  // namespace lockstep::decode
