// SPDX-License-Identifier: Apache-2.0
// Finds the first stop string in a text that arrives in pieces, whatever the cuts.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::text {

class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  struct Output {
    std::string text;      // safe to show: can't be part of a stop string any more
    bool stopped = false;  // a stop string was found; it and what follows are left out
  };

  // The match that is complete first wins, at the same end the longest: so the result doesn't
  // depend on the cuts, and nothing beyond the match is needed. An ending that may begin a stop
  // string is held back. After a stop everything pushed is ignored.
  Output push(std::string_view text);

  // What is held back at the end of the text.
  std::string flush();

  // All state; equal inputs after a rewind give equal outputs.
  struct Mark {
    std::string held;
    bool stopped = false;
  };
  Mark mark() const { return state_; }
  void rewind(Mark mark) { state_ = std::move(mark); }

 private:
  std::shared_ptr<const std::vector<std::string>> stops_;
  Mark state_;
};

}  // namespace lockstep::text
