// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/cli/command.h"
#include "lockstep/text/answer.h"

namespace lockstep::cli {

// Shows one answer while it grows: content on stdout; reasoning dim on stderr, if that is a
// terminal.
class AnswerDisplay {
 public:
  explicit AnswerDisplay(Console& console) : console_(console) {}

  void show(const text::AnswerStream::Delta& delta);
  // Ends the last line, and prints tool calls as JSON, one a line.
  void finish(const text::Answer& answer);

 private:
  void end_reasoning();

  Console& console_;
  bool in_reasoning_ = false;
};

}  // namespace lockstep::cli
