// SPDX-License-Identifier: Apache-2.0
// From generated ids to an answer: detokeniser, stop strings, reasoning and tool calls in a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/io/json.h"
#include "lockstep/text/detokenizer.h"
#include "lockstep/text/reasoning.h"
#include "lockstep/text/stop_strings.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/text/tool_calls.h"

namespace lockstep::text {

struct Answer {
  std::string text;      // content without reasoning and calls
  std::string raw_text;  // all that was generated, stop string and special tokens included
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  bool stopped = false;  // by a stop string
};

class AnswerStream {
 public:
  struct Options {
    bool opens_reasoning = false;    // RenderedChat::opens_reasoning
    std::vector<std::string> stops;  // looked for in reasoning and content alike
    io::Json tools;                  // null: tool calls are left in the text
  };

  // Keeps a reference to `tokenizer`.
  AnswerStream(const Tokenizer& tokenizer, Options options);

  struct Delta {
    std::string reasoning;
    std::string content;
    bool stopped = false;
  };

  // What `id` makes certain. The token that ends the turn isn't pushed. Special tokens count in
  // raw_text only. After a stop only raw_text grows.
  Delta push(std::int32_t id);

  // Hands out what was held back. Called once, at the end.
  Delta finish();

  // What was taken so far; complete after finish().
  const Answer& answer() const { return answer_; }

  // Everything that push changes. Costs the held text, not the answer's length.
  struct Mark {
    Detokenizer::Mark raw_decoder, decoder;
    StopMatcher::Mark stops;
    ReasoningSplitter reasoning;
    ToolCallSplitter tool_calls;
    std::size_t text_bytes, raw_text_bytes, reasoning_bytes;
    bool stopped;
  };
  Mark mark() const;
  void rewind(const Mark& mark);  // to an earlier point of the same stream

 private:
  Delta take(std::string_view text, bool last);

  Detokenizer raw_decoder_;
  Detokenizer decoder_;
  StopMatcher stops_;
  ReasoningSplitter reasoning_;
  ToolCallSplitter tool_calls_;
  bool parse_calls_;
  Answer answer_;
};

}  // namespace lockstep::text
