// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/answer.h"

#include <utility>

namespace lockstep::text {

AnswerStream::AnswerStream(const Tokenizer& tokenizer, Options options)
    : raw_decoder_(tokenizer, false),
      decoder_(tokenizer, true),
      stops_(std::move(options.stops)),
      reasoning_(options.opens_reasoning),
      tool_calls_(options.tools),
      parse_calls_(!options.tools.is_null()) {}

AnswerStream::Delta AnswerStream::push(std::int32_t id) {
  answer_.raw_text += raw_decoder_.push(id);
  return take(decoder_.push(id), false);
}

AnswerStream::Delta AnswerStream::finish() {
  answer_.raw_text += raw_decoder_.flush();
  return take(decoder_.flush(), true);
}

AnswerStream::Delta AnswerStream::take(std::string_view text, bool last) {
  StopMatcher::Output safe = stops_.push(text);
  if (last) safe.text += stops_.flush();
  ReasoningSplitter::Delta parts = reasoning_.push(safe.text);
  if (last) {
    ReasoningSplitter::Delta rest = reasoning_.flush();
    parts.reasoning += rest.reasoning;
    parts.content += rest.content;
  }
  if (parse_calls_) {
    parts.content = tool_calls_.push(parts.content);
    if (last) parts.content += tool_calls_.flush();
    if (answer_.tool_calls.size() != tool_calls_.calls().size()) {
      answer_.tool_calls = tool_calls_.calls();
    }
  }
  answer_.stopped = safe.stopped;
  answer_.reasoning += parts.reasoning;
  answer_.text += parts.content;
  return {std::move(parts.reasoning), std::move(parts.content), safe.stopped};
}

AnswerStream::Mark AnswerStream::mark() const {
  return {.raw_decoder = raw_decoder_.mark(),
          .decoder = decoder_.mark(),
          .stops = stops_.mark(),
          .reasoning = reasoning_,
          .tool_calls = tool_calls_,
          .text_bytes = answer_.text.size(),
          .raw_text_bytes = answer_.raw_text.size(),
          .reasoning_bytes = answer_.reasoning.size(),
          .stopped = answer_.stopped};
}

void AnswerStream::rewind(const Mark& mark) {
  raw_decoder_.rewind(mark.raw_decoder);
  decoder_.rewind(mark.decoder);
  stops_.rewind(mark.stops);
  reasoning_ = mark.reasoning;
  tool_calls_ = mark.tool_calls;
  answer_.text.resize(mark.text_bytes);
  answer_.raw_text.resize(mark.raw_text_bytes);
  answer_.reasoning.resize(mark.reasoning_bytes);
  answer_.tool_calls = tool_calls_.calls();
  answer_.stopped = mark.stopped;
}

}  // namespace lockstep::text
