// SPDX-License-Identifier: Apache-2.0
// Tool calls in generated text, in the family's XML dialect (spec 7.3):
//   <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n ...
//   </function>\n</tool_call>
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/io/json.h"

namespace lockstep::text {

struct ToolCall {
  std::string name;
  io::Json arguments = io::Json::object();  // in the order they were written

  bool operator==(const ToolCall&) const = default;
};

// Takes content as it arrives and hands on what isn't part of a tool call. Values are raw text
// and may hold anything, closing tags too: a parameter ends at the first "</parameter>" that is
// followed by another parameter or by the end of the function. Values are typed by the schema
// declared for the function in `tools`: what is declared as a string, or not at all, stays as it
// is; else a bare null is null, True and False are booleans where declared, JSON is parsed, and
// what isn't JSON stays a string. White space in front of a call and after the last is dropped.
// What turns out not to be a well-formed call is content, to the byte.
// A copyable value: a copy is a mark, assigning it back is a rewind.
class ToolCallSplitter {
 public:
  // `tools` as given to the template: an array of {"function": {...}} or of bare functions, or
  // null.
  explicit ToolCallSplitter(const io::Json& tools);

  // Content that is certain; from the beginning of a possible call on, text is held back.
  std::string push(std::string_view text);

  // The end of the text: a call that isn't finished is content.
  std::string flush();

  const std::vector<ToolCall>& calls() const { return calls_; }

  // A call was begun, and flush() had to give it back as content.
  bool cut_short() const { return cut_short_; }

 private:
  bool step(bool last, std::string& out);
  bool take_call(std::size_t space, bool last, std::string& out);
  void emit(std::size_t size, std::string& out);

  std::shared_ptr<const io::Json> tools_;
  std::vector<ToolCall> calls_;
  std::string held_;
  std::size_t scanned_ = 0;  // of the call in held_, already searched for its end
  bool header_seen_ = false;
  bool after_call_ = false;
  bool cut_short_ = false;
};

struct ParsedContent {
  std::string content;  // without the calls
  std::vector<ToolCall> calls;
  bool complete = true;  // false when the text ends inside a call
};

// The whole of a text at once; the same result as ToolCallSplitter with any cuts.
ParsedContent parse_tool_calls(std::string_view content, const io::Json& tools);

}  // namespace lockstep::text
