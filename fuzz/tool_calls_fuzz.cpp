// SPDX-License-Identifier: Apache-2.0
// Generated text through the tool-call parser: cuts don't matter, and without a call nothing is
// lost. The first byte chooses the cuts.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/check.h"
#include "lockstep/text/tool_calls.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using lockstep::io::Json;
  static const Json tools =
      lockstep::io::parse_json(
          R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string"},
              "i": {"type": "integer"}, "b": {"type": "boolean"}, "o": {"type": "object"},
              "u": {"type": ["string", "number"]}}}}])",
          "tools")
          .value();
  if (size == 0) return 0;
  const std::size_t step = data[0] % 16 + std::size_t{1};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);

  const auto whole = lockstep::text::parse_tool_calls(text, tools);
  lockstep::text::ToolCallSplitter splitter(tools);
  std::string content;
  for (std::size_t at = 0; at < text.size(); at += step) {
    content += splitter.push(text.substr(at, step));
  }
  content += splitter.flush();
  CHECK(content == whole.content);
  CHECK(splitter.calls() == whole.calls);
  if (whole.calls.empty()) CHECK(content == text);
  return 0;
}
