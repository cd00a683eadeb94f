// SPDX-License-Identifier: Apache-2.0
// A conversation as JSON, an array of messages or an object with messages and tools, through the
// demo model's template. Runs in the repository root.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/base/check.h"
#include "lockstep/text/chat_template.h"

namespace {

using lockstep::io::Json;
using lockstep::text::ChatOptions;
using lockstep::text::ChatTemplate;
using lockstep::text::Tokenizer;

std::ptrdiff_t added_count(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  return std::count_if(ids.begin(), ids.end(),
                       [&](std::int32_t id) { return tokenizer.is_added(id); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tokenizer tokenizer = Tokenizer::open("models/demo").value();
  static const ChatTemplate chat = ChatTemplate::open("models/demo").value();
  const auto json = lockstep::io::parse_json({reinterpret_cast<const char*>(data), size}, "input");
  if (!json.ok()) return 0;
  const Json* messages = json->find("messages");
  const Json* tools = json->find("tools");
  const Json none;
  if (messages == nullptr) messages = &*json;
  if (tools == nullptr) tools = &none;

  ChatOptions options;
  const auto guarded = chat.render(tokenizer, *messages, *tools, options);
  options.allow_control_tokens = true;
  const auto plain = chat.render(tokenizer, *messages, *tools, options);
  CHECK(guarded.ok() == plain.ok());
  if (!guarded.ok()) return 0;
  CHECK(guarded->text == plain->text);
  CHECK(added_count(tokenizer, guarded->ids) <= added_count(tokenizer, plain->ids));
  return 0;
}
