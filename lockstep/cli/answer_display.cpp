// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cli/answer_display.h"

#include <utility>

namespace lockstep::cli {

void AnswerDisplay::end_reasoning() {
  if (in_reasoning_) console_.reasoning("\n");
  in_reasoning_ = false;
}

void AnswerDisplay::show(const text::AnswerStream::Delta& delta) {
  if (!delta.reasoning.empty()) {
    console_.reasoning(delta.reasoning);
    in_reasoning_ = true;
  }
  if (delta.content.empty()) return;
  end_reasoning();
  console_.out(delta.content);
}

void AnswerDisplay::finish(const text::Answer& answer) {
  end_reasoning();
  if (!answer.text.empty() && answer.text.back() != '\n') console_.out("\n");
  for (const text::ToolCall& call : answer.tool_calls) {
    io::Json json = io::Json::object();
    json.set("name", call.name);
    json.set("arguments", call.arguments);
    console_.out_json(json, -1);
  }
}

}  // namespace lockstep::cli
