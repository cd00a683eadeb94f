// SPDX-License-Identifier: Apache-2.0
// Separates reasoning from content in generated text (spec 7.3). The template opens the tag, so
// only its end is looked for.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::text {

// A copyable value: a copy is a mark, assigning it back is a rewind.
class ReasoningSplitter {
 public:
  // With `opens_reasoning` the text starts inside <think>; else all of it is content.
  explicit ReasoningSplitter(bool opens_reasoning);

  struct Delta {
    std::string reasoning;
    std::string content;
  };

  // Reasoning ends at the first "</think>", which is dropped, or at a line that begins a tool call
  // in the family's form ("<tool_call>", line break, "<function="), which is content. Newlines at
  // both ends of the reasoning and in front of the content are dropped.
  Delta push(std::string_view text);

  // What is held back at the end: a tag that never became one.
  Delta flush();

  bool in_reasoning() const {
    return phase_ == Phase::kReasoningStart || phase_ == Phase::kReasoning;
  }

 private:
  enum class Phase { kReasoningStart, kReasoning, kContentStart, kContent };
  void take_reasoning(std::string_view text, bool last, Delta& out);
  void take_content(std::string_view text, Delta& out);

  Phase phase_;
  std::string held_;
};

}  // namespace lockstep::text
