// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/reasoning.h"

#include <algorithm>
#include <utility>

namespace lockstep::text {
namespace {

constexpr std::string_view kEnd = "</think>";
constexpr std::string_view kCall = "<tool_call>\n<function=";

// Bytes at the end of `text` that may begin one of the two ends, newlines in front included.
std::size_t pending_size(std::string_view text) {
  std::size_t held = 0;
  for (const std::string_view end : {kEnd, kCall}) {
    for (std::size_t size = std::min(end.size() - 1, text.size()); size > held; --size) {
      if (text.ends_with(end.substr(0, size))) held = size;
    }
  }
  while (held < text.size() && text[text.size() - held - 1] == '\n')
    ++held;
  return held;
}

// A call counts only at the beginning of a line: reasoning may talk about the form.
std::size_t find_call(std::string_view text, bool at_line_start) {
  for (std::size_t at = text.find(kCall); at != std::string_view::npos;
       at = text.find(kCall, at + 1)) {
    if (at == 0 ? at_line_start : text[at - 1] == '\n') return at;
  }
  return std::string_view::npos;
}

std::string_view without_newlines(std::string_view text) {
  while (!text.empty() && text.back() == '\n')
    text.remove_suffix(1);
  return text;
}

}  // namespace

ReasoningSplitter::ReasoningSplitter(bool opens_reasoning)
    : phase_(opens_reasoning ? Phase::kReasoningStart : Phase::kContent) {}

ReasoningSplitter::Delta ReasoningSplitter::push(std::string_view text) {
  Delta out;
  if (in_reasoning()) {
    take_reasoning(text, false, out);
  } else {
    take_content(text, out);
  }
  return out;
}

ReasoningSplitter::Delta ReasoningSplitter::flush() {
  Delta out;
  if (in_reasoning()) take_reasoning({}, true, out);
  return out;
}

void ReasoningSplitter::take_reasoning(std::string_view text, bool last, Delta& out) {
  std::string joined = std::exchange(held_, {});
  joined += text;
  std::string_view window = joined;
  const bool at_start = phase_ == Phase::kReasoningStart;
  while (at_start && window.starts_with('\n'))
    window.remove_prefix(1);
  const std::size_t end = window.find(kEnd);
  const std::size_t call = find_call(window, at_start);
  if (const std::size_t cut = std::min(end, call); cut != std::string_view::npos) {
    out.reasoning += without_newlines(window.substr(0, cut));
    phase_ = Phase::kContentStart;
    take_content(window.substr(end < call ? cut + kEnd.size() : cut), out);
    return;
  }
  if (last) {
    out.reasoning += without_newlines(window);
    return;
  }
  const std::size_t held = pending_size(window);
  if (held < window.size()) phase_ = Phase::kReasoning;
  out.reasoning += window.substr(0, window.size() - held);
  held_ = window.substr(window.size() - held);
}

void ReasoningSplitter::take_content(std::string_view text, Delta& out) {
  if (phase_ == Phase::kContentStart) {
    while (text.starts_with('\n'))
      text.remove_prefix(1);
    if (text.empty()) return;
    phase_ = Phase::kContent;
  }
  out.content += text;
}

}  // namespace lockstep::text
