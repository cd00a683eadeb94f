// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/messages.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/limits.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

using io::Json;

// Room for what the renderer wraps around a conversation.
constexpr std::size_t kDepthMax = limits::kJsonDepthMax - 8;

Error wrong(std::string where, const std::string& expected, const Json& found) {
  return Error{ErrorCode::kInvalidArgument,
               "should be " + expected + ", but is " + found.kind_name(), std::move(where)};
}

std::string item(const std::string& where, std::size_t index) {
  return where + "[" + std::to_string(index) + "]";
}

// Every string is UTF-8, and nothing is nested deeper than the renderer takes.
Status check_value(const Json& value, const std::string& where, std::size_t depth) {
  if (depth > kDepthMax) {
    return Error{ErrorCode::kLimit,
                 "is nested deeper than " + std::to_string(kDepthMax) + " levels", where};
  }
  const auto check_text = [&](const std::string& text) -> Status {
    const std::size_t at = find_invalid_utf8(text);
    if (at == std::string::npos) return {};
    return Error{ErrorCode::kInvalidArgument,
                 "isn't valid UTF-8 at byte " + std::to_string(at) + "; convert it to UTF-8 first",
                 where};
  };
  if (value.is_string()) return check_text(value.as_string());
  if (value.is_array()) {
    for (const Json& member : value.as_array()) {
      LOCKSTEP_TRY_STATUS(check_value(member, where, depth + 1));
    }
  }
  if (value.is_object()) {
    for (const auto& [key, member] : value.as_object()) {
      LOCKSTEP_TRY_STATUS(check_text(key));
      LOCKSTEP_TRY_STATUS(check_value(member, where, depth + 1));
    }
  }
  return {};
}

Status check_part(const Json& part, const std::string& where) {
  constexpr std::array<std::string_view, 4> kMedia = {"image", "image_url", "video", "video_url"};
  if (!part.is_object()) return wrong(where, "an object with a type", part);
  const Json* type = part.find("type");
  const Json* text = part.find("text");
  if (type != nullptr && !type->is_string()) return wrong(where + ".type", "a string", *type);
  const bool is_media =
      type != nullptr ? std::find(kMedia.begin(), kMedia.end(), type->as_string()) != kMedia.end()
                      : std::any_of(kMedia.begin(), kMedia.end(), [&](std::string_view key) {
                          return part.find(key) != nullptr;
                        });
  if (is_media) return {};
  if (type == nullptr ? text == nullptr : type->as_string() != "text") {
    return Error{
        ErrorCode::kInvalidArgument,
        "should be \"text\", \"image\", \"image_url\", \"video\" or \"video_url\", but is " +
            (type == nullptr ? std::string("missing") : type->dump()),
        where + ".type"};
  }
  if (text == nullptr) {
    return Error{ErrorCode::kInvalidArgument, "is missing; a text part needs it", where + ".text"};
  }
  if (!text->is_string()) return wrong(where + ".text", "a string", *text);
  return {};
}

Status check_content(const Json& content, const std::string& where) {
  if (content.is_null() || content.is_string()) return {};
  if (!content.is_array()) return wrong(where, "a string or an array of parts", content);
  for (std::size_t i = 0; i < content.size(); ++i) {
    LOCKSTEP_TRY_STATUS(check_part(content.as_array()[i], item(where, i)));
  }
  return {};
}

// `function` is the object that has name and arguments.
Status normalize_function(Json& function, const std::string& where) {
  if (!function.is_object()) return wrong(where, "an object with name and arguments", function);
  const Json* name = function.find("name");
  if (name == nullptr) {
    return Error{ErrorCode::kInvalidArgument, "is missing; a tool call needs it", where + ".name"};
  }
  if (!name->is_string()) return wrong(where + ".name", "a string", *name);
  const Json* arguments = function.find("arguments");
  if (arguments == nullptr || arguments->is_object()) return {};
  const std::string at = where + ".arguments";
  if (arguments->is_null() || (arguments->is_string() && arguments->as_string().empty())) {
    function.set("arguments", Json::object());
    return {};
  }
  if (!arguments->is_string()) return wrong(at, "an object or the JSON text of one", *arguments);
  Result<Json> parsed = io::parse_json(arguments->as_string(), at);
  if (!parsed.ok()) {
    return Error{ErrorCode::kInvalidArgument, "is a string that " + parsed.error().message, at};
  }
  if (!parsed->is_object()) return wrong(at, "the JSON text of an object", *parsed);
  function.set("arguments", std::move(parsed).value());
  return {};
}

Status normalize_tool_calls(Json& calls, const std::string& where) {
  if (calls.is_null()) return {};
  if (!calls.is_array()) return wrong(where, "an array of tool calls", calls);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Json& call = calls.as_array()[i];
    if (!call.is_object()) return wrong(item(where, i), "an object", call);
    if (call.find("function") == nullptr) {
      LOCKSTEP_TRY_STATUS(normalize_function(call, item(where, i)));
      continue;
    }
    for (auto& [key, value] : call.as_object()) {
      if (key != "function") continue;
      LOCKSTEP_TRY_STATUS(normalize_function(value, item(where, i) + ".function"));
    }
  }
  return {};
}

Status normalize_message(Json& message, const std::string& where) {
  if (!message.is_object()) return wrong(where, "an object with role and content", message);
  const Json* role = message.find("role");
  if (role == nullptr) {
    return Error{ErrorCode::kInvalidArgument, "is missing; a message needs it", where + ".role"};
  }
  if (!role->is_string()) return wrong(where + ".role", "a string", *role);
  for (auto& [key, value] : message.as_object()) {
    const std::string at = where + "." + key;
    if (key == "content") LOCKSTEP_TRY_STATUS(check_content(value, at));
    if (key == "tool_calls") LOCKSTEP_TRY_STATUS(normalize_tool_calls(value, at));
    if (key == "reasoning_content" && !value.is_null() && !value.is_string()) {
      return wrong(at, "a string", value);
    }
    LOCKSTEP_TRY_STATUS(check_value(value, at, 2));
  }
  return {};
}

}  // namespace

Result<Json> normalize_messages(const Json& messages) {
  if (!messages.is_array()) return wrong("messages", "an array of messages", messages);
  Json out = messages;
  for (std::size_t i = 0; i < out.size(); ++i) {
    LOCKSTEP_TRY_STATUS(normalize_message(out.as_array()[i], item("messages", i)));
  }
  return out;
}

Status check_tools(const Json& tools) {
  if (tools.is_null()) return {};
  if (!tools.is_array()) return wrong("tools", "an array of tool definitions", tools);
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools.as_array()[i];
    if (!tool.is_object()) return wrong(item("tools", i), "an object", tool);
    LOCKSTEP_TRY_STATUS(check_value(tool, item("tools", i), 1));
  }
  return {};
}

}  // namespace lockstep::text
