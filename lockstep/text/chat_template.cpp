// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/chat_template.h"

#include <utility>

#include "lockstep/base/limits.h"
#include "lockstep/text/bridge.h"
#include "lockstep/text/marking.h"
#include "lockstep/text/messages.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

using io::Json;

struct Found {
  std::string source;
  std::string label;
};

// `chat_template` of a JSON file: a string, or a list of named ones.
Result<Found> template_of(const Json& json, const std::string& path) {
  const Json* value = json.find("chat_template");
  if (value == nullptr || value->is_null()) {
    return Error{ErrorCode::kNotFound, "has no chat_template", path};
  }
  if (value->is_string()) return Found{value->as_string(), path};
  if (value->is_array()) {
    for (const Json& entry : value->as_array()) {
      const Json* name = entry.find("name");
      const Json* source = entry.find("template");
      if (name != nullptr && name->is_string() && name->as_string() == "default" &&
          source != nullptr && source->is_string()) {
        return Found{source->as_string(), path};
      }
    }
  }
  return Error{
      ErrorCode::kFormat,
      "has a chat_template that is neither a string nor a list with an entry named default", path};
}

Result<Found> find_template(const std::string& model_dir, const Result<Json>& config,
                            const std::string& config_path) {
  const std::string jinja = model_dir + "/chat_template.jinja";
  Result<std::string> text = io::read_file(jinja, limits::kTemplateFileBytesMax);
  if (text.ok()) return Found{std::move(text).value(), jinja};
  if (text.error().code != ErrorCode::kNotFound) return text.error();

  const std::string json_path = model_dir + "/chat_template.json";
  const Result<Json> json = io::read_json_file(json_path);
  if (json.ok()) return template_of(*json, json_path);
  if (json.error().code != ErrorCode::kNotFound) return json.error();

  if (config.ok() && config->find("chat_template") != nullptr) {
    return template_of(*config, config_path);
  }
  return Error{ErrorCode::kNotFound,
               "has no chat template (chat_template.jinja, chat_template.json, or chat_template in "
               "tokenizer_config.json); add one, or give the prompt raw",
               model_dir};
}

// The special tokens that templates may name.
Json special_tokens(const Json& config) {
  Json out = Json::object();
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token",
                          "cls_token", "mask_token", "additional_special_tokens"}) {
    const Json* value = config.find(key);
    if (value == nullptr) continue;
    if (const Json* content = value->find("content")) value = content;
    if (value->is_string() || value->is_array()) out.set(key, *value);
  }
  return out;
}

Json variables_of(const Json& base, Json messages, Json tools, const ChatOptions& options) {
  Json out = base;
  out.set("messages", std::move(messages));
  out.set("tools", std::move(tools));
  out.set("documents", Json());
  out.set("add_generation_prompt", Json(options.add_generation_prompt));
  out.set("add_vision_id", Json(options.add_vision_id));
  if (options.enable_thinking) out.set("enable_thinking", Json(*options.enable_thinking));
  if (options.preserve_thinking) out.set("preserve_thinking", Json(*options.preserve_thinking));
  return out;
}

bool ends_in_open_think(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  return last != std::string_view::npos && text.substr(0, last + 1).ends_with("<think>");
}

}  // namespace

struct ChatTemplate::Impl {
  BridgeTemplate bridge;
  std::string source;
  std::string label;
  Json variables;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

const std::string& ChatTemplate::source() const {
  return impl_->source;
}
const std::string& ChatTemplate::label() const {
  return impl_->label;
}

Result<ChatTemplate> ChatTemplate::open(const std::string& model_dir) {
  const std::string config_path = model_dir + "/tokenizer_config.json";
  const Result<Json> config = io::read_json_file(config_path);
  if (!config.ok() && config.error().code != ErrorCode::kNotFound) return config.error();
  LOCKSTEP_TRY(Found found, find_template(model_dir, config, config_path));
  return from_source(std::move(found.source), std::move(found.label),
                     config.ok() ? special_tokens(*config) : Json::object());
}

Result<ChatTemplate> ChatTemplate::from_source(std::string source, std::string label,
                                               const Json& variables) {
  if (source.size() > limits::kTemplateFileBytesMax) {
    return Error{ErrorCode::kLimit,
                 "is a chat template of " + std::to_string(source.size()) +
                     " bytes; the limit is " + std::to_string(limits::kTemplateFileBytesMax),
                 std::move(label)};
  }
  if (const std::size_t at = find_invalid_utf8(source); at != std::string::npos) {
    return Error{ErrorCode::kFormat, "isn't valid UTF-8 at byte " + std::to_string(at),
                 std::move(label)};
  }
  LOCKSTEP_TRY(BridgeTemplate bridge, BridgeTemplate::open(source, label));
  return ChatTemplate(
      std::make_unique<Impl>(Impl{std::move(bridge), std::move(source), std::move(label),
                                  variables.is_object() ? variables : Json::object()}));
}

Result<RenderedChat> ChatTemplate::render(const Tokenizer& tokenizer, const Json& messages,
                                          const Json& tools, const ChatOptions& options) const {
  LOCKSTEP_TRY(Json checked, normalize_messages(messages));
  LOCKSTEP_TRY_STATUS(check_tools(tools));
  RenderedChat out;
  if (options.allow_control_tokens) {
    const Json variables = variables_of(impl_->variables, std::move(checked), tools, options);
    LOCKSTEP_TRY(out.text, impl_->bridge.render(variables.dump(), ""));
    LOCKSTEP_TRY(out.ids, tokenizer.encode(out.text, AddedTokens::kMatch));
  } else {
    LOCKSTEP_TRY(const Marker marker, Marker::create(tokenizer.added_tokens(), {impl_->source},
                                                     {&checked, &tools, &impl_->variables}));
    const Json variables = variables_of(impl_->variables, marker.mark_messages(checked),
                                        marker.mark_value(tools), options);
    LOCKSTEP_TRY(const std::string rendered,
                 impl_->bridge.render(variables.dump(), marker.marks().both()));
    UnmarkedText unmarked = unmark(rendered, marker.marks());
    LOCKSTEP_TRY(out.ids, encode_unmarked(tokenizer, unmarked));
    out.text = std::move(unmarked.text);
  }
  out.opens_reasoning = options.add_generation_prompt && ends_in_open_think(out.text);
  return out;
}

}  // namespace lockstep::text
