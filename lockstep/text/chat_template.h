// SPDX-License-Identifier: Apache-2.0
// Conversations to prompts: the artifact's own Jinja chat template (spec 7.2), rendered with
// Python's semantics and under limits. Text supplied by the user never becomes a control token:
// literals of added tokens inside it are marked before rendering and encoded as plain text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/io/json.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::text {

struct ChatOptions {
  bool add_generation_prompt = true;
  std::optional<bool> enable_thinking;    // not given: the template's own default
  std::optional<bool> preserve_thinking;  // not given: the template's own default
  bool add_vision_id = false;
  bool allow_control_tokens = false;  // literals in user text do become control tokens
};

struct RenderedChat {
  std::string text;
  std::vector<std::int32_t> ids;
  bool opens_reasoning = false;  // generation starts inside <think>
};

class ChatTemplate {
 public:
  // chat_template.jinja, else chat_template.json, else `chat_template` of tokenizer_config.json: a
  // string, or a list of {name, template} of which "default" is taken. kNotFound without any;
  // kTemplate when it doesn't compile. Without the bridge: kUnsupported.
  static Result<ChatTemplate> open(const std::string& model_dir);

  // `label` names the template in errors; `variables` is an object of extra names it may use, such
  // as bos_token, or null.
  static Result<ChatTemplate> from_source(std::string source, std::string label,
                                          const io::Json& variables);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `messages` is an OpenAI-style array; arguments of tool calls given as JSON text are parsed.
  // `tools` is an array of objects, or null. Unknown keys are passed to the template.
  // Errors: kInvalidArgument with where = e.g. "messages[3].content"; kTemplate when the template
  // raises, or exceeds limits::kTemplateFuel or kTemplateOutputBytesMax. Thread safe.
  Result<RenderedChat> render(const Tokenizer& tokenizer, const io::Json& messages,
                              const io::Json& tools, const ChatOptions& options) const;

  const std::string& source() const;
  const std::string& label() const;  // the file it came from

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::text
