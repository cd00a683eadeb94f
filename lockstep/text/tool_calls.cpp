// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/tool_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace lockstep::text {
namespace {

using io::Json;

constexpr std::string_view kCallOpen = "<tool_call>";
constexpr std::string_view kCallClose = "</tool_call>";
constexpr std::string_view kFunctionOpen = "<function=";
constexpr std::string_view kFunctionClose = "</function>";
constexpr std::string_view kParameterOpen = "<parameter=";
constexpr std::string_view kParameterClose = "</parameter>";
constexpr std::size_t kNameBytesMax = 256;
constexpr std::size_t kSpaceBytesMax = 64;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// Reads a text from the front. What isn't there yet is distinguished from what is wrong.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  enum class Found { kYes, kNo, kUnfinished };

  std::size_t position() const { return at_; }
  std::string_view rest() const { return text_.substr(at_); }

  Found take(std::string_view literal) {
    if (rest().starts_with(literal)) {
      at_ += literal.size();
      return Found::kYes;
    }
    return literal.starts_with(rest()) ? Found::kUnfinished : Found::kNo;
  }

  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_]))
      ++at_;
  }

  // At most kSpaceBytesMax: what is read again with every piece of text has to stay short.
  Found take_short_space() {
    const std::size_t begin = at_;
    skip_space();
    return at_ - begin > kSpaceBytesMax ? Found::kNo : Found::kYes;
  }

  // A name up to ">", without line breaks or another tag.
  Found take_name(std::string& name) {
    const std::size_t end = rest().find_first_of(">\n<");
    if (end == std::string_view::npos) {
      return rest().size() > kNameBytesMax ? Found::kNo : Found::kUnfinished;
    }
    if (end == 0 || end > kNameBytesMax || rest()[end] != '>') return Found::kNo;
    name = rest().substr(0, end);
    at_ += end + 1;
    return Found::kYes;
  }

  // A value up to the "</parameter>" that another parameter or the function's end follows.
  Found take_value(std::string& value) {
    for (std::size_t end = text_.find(kParameterClose, at_); end != std::string_view::npos;
         end = text_.find(kParameterClose, end + 1)) {
      Reader after(text_);
      after.at_ = end + kParameterClose.size();
      after.skip_space();
      const Found parameter = after.take(kParameterOpen);
      const Found function = parameter == Found::kYes ? Found::kNo : after.take(kFunctionClose);
      if (parameter == Found::kUnfinished || function == Found::kUnfinished) {
        return Found::kUnfinished;
      }
      if (parameter == Found::kNo && function == Found::kNo) continue;
      std::string_view raw = text_.substr(at_, end - at_);
      if (raw.starts_with('\n')) raw.remove_prefix(1);
      if (raw.ends_with('\n')) raw.remove_suffix(1);
      value = raw;
      at_ = end + kParameterClose.size();
      return Found::kYes;
    }
    return Found::kUnfinished;
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

using Found = Reader::Found;

// A call as written: values are text.
struct RawCall {
  std::string name;
  std::vector<std::pair<std::string, std::string>> parameters;
  std::size_t size = 0;  // bytes, tags included
};

Found read_header(Reader& reader, std::string& name) {
  if (const Found found = reader.take(kCallOpen); found != Found::kYes) return found;
  if (reader.take_short_space() == Found::kNo) return Found::kNo;
  if (const Found found = reader.take(kFunctionOpen); found != Found::kYes) return found;
  return reader.take_name(name);
}

Found read_call(std::string_view text, RawCall& call) {
  Reader reader(text);
  if (const Found found = read_header(reader, call.name); found != Found::kYes) return found;
  for (;;) {
    reader.skip_space();
    const Found parameter = reader.take(kParameterOpen);
    if (parameter == Found::kNo) break;
    if (parameter == Found::kUnfinished) return parameter;
    std::string key, value;
    if (const Found found = reader.take_name(key); found != Found::kYes) return found;
    if (const Found found = reader.take_value(value); found != Found::kYes) return found;
    call.parameters.emplace_back(std::move(key), std::move(value));
  }
  if (const Found found = reader.take(kFunctionClose); found != Found::kYes) return found;
  reader.skip_space();
  if (const Found found = reader.take(kCallClose); found != Found::kYes) return found;
  call.size = reader.position();
  return Found::kYes;
}

// The declared schema of a function's parameter, or null.
const Json* parameter_schema(const Json& tools, std::string_view function, std::string_view key) {
  if (!tools.is_array()) return nullptr;
  for (const Json& tool : tools.as_array()) {
    const Json* inner = tool.find("function");
    const Json& declared = inner != nullptr && inner->is_object() ? *inner : tool;
    const Json* name = declared.find("name");
    if (name == nullptr || !name->is_string() || name->as_string() != function) continue;
    const Json* parameters = declared.find("parameters");
    const Json* properties = parameters == nullptr ? nullptr : parameters->find("properties");
    return properties == nullptr ? nullptr : properties->find(key);
  }
  return nullptr;
}

// The types that a schema allows; of unions all members. Empty when it doesn't say.
std::vector<std::string> types_of(const Json& schema) {
  std::vector<std::string> types;
  const auto add = [&](const Json& type) {
    if (type.is_string()) types.push_back(type.as_string());
  };
  if (const Json* type = schema.find("type")) {
    add(*type);
    if (type->is_array()) std::for_each(type->as_array().begin(), type->as_array().end(), add);
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const Json* members = schema.find(key);
    if (members == nullptr || !members->is_array()) continue;
    for (const Json& member : members->as_array()) {
      if (const Json* type = member.find("type")) add(*type);
    }
  }
  return types;
}

bool has_type(const Json& value, std::string_view type) {
  if (type == "integer") return value.is_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_bool();
  if (type == "object") return value.is_object();
  return type == "array" && value.is_array();
}

Json typed_value(const std::string& text, const Json* schema) {
  const std::vector<std::string> types =
      schema == nullptr ? std::vector<std::string>() : types_of(*schema);
  const auto allows = [&](std::string_view type) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  const bool string_only = types.size() == 1 && allows("string");
  if (types.empty() || string_only) return Json(text);
  if (text == "null") return Json();
  // The 3.5 template writes booleans as Python does, and models repeat what they were shown.
  if (allows("boolean") && (text == "True" || text == "False")) return Json(text == "True");
  Result<Json> parsed = io::parse_json(text, "argument");
  if (!parsed.ok()) return Json(text);
  if (!allows("string")) return std::move(parsed).value();
  const bool fits = std::any_of(types.begin(), types.end(),
                                [&](const std::string& type) { return has_type(*parsed, type); });
  return fits ? std::move(parsed).value() : Json(text);
}

ToolCall typed_call(const RawCall& raw, const Json& tools) {
  ToolCall call{.name = raw.name};
  for (const auto& [key, value] : raw.parameters) {
    call.arguments.set(key, typed_value(value, parameter_schema(tools, raw.name, key)));
  }
  return call;
}

// Bytes at the end of `text` that may be the space before a call and the beginning of its tag.
std::size_t pending_size(std::string_view text) {
  std::size_t held = std::min(kCallOpen.size() - 1, text.size());
  while (!text.ends_with(kCallOpen.substr(0, held)))
    --held;
  while (held < text.size() && is_space(text[text.size() - held - 1]))
    ++held;
  return held;
}

}  // namespace

ToolCallSplitter::ToolCallSplitter(const Json& tools)
    : tools_(std::make_shared<const Json>(tools)) {}

std::string ToolCallSplitter::push(std::string_view text) {
  std::string out;
  held_ += text;
  while (step(false, out)) {
  }
  return out;
}

std::string ToolCallSplitter::flush() {
  std::string out;
  while (step(true, out)) {
  }
  return out;
}

// Hands on what is certain. Returns whether there may be more to do.
bool ToolCallSplitter::step(bool last, std::string& out) {
  const std::size_t open = held_.find(kCallOpen);
  if (open == std::string::npos) {
    const bool space_after_call = after_call_ && std::all_of(held_.begin(), held_.end(), is_space);
    const std::size_t held = last ? (space_after_call ? held_.size() : 0) : pending_size(held_);
    emit(held_.size() - held, out);
    if (last) held_.clear();
    return false;
  }
  std::size_t content = open;
  while (content > 0 && is_space(held_[content - 1]))
    --content;
  emit(content, out);
  return take_call(open - content, last, out);
}

// held_ begins with `space` bytes of white space and a call's opening tag.
bool ToolCallSplitter::take_call(std::size_t space, bool last, std::string& out) {
  const std::string_view text = std::string_view(held_).substr(space);
  RawCall call;
  Found found = Found::kUnfinished;
  if (!header_seen_) {
    Reader reader(text);
    found = read_header(reader, call.name);
    header_seen_ = found == Found::kYes;
  }
  if (header_seen_) {
    // No call is complete without another closing tag, so reading again before that is idle.
    const bool read = last || text.find(kCallClose, scanned_) != std::string_view::npos;
    scanned_ = text.size() - std::min(text.size(), kCallClose.size() - 1);
    found = read ? read_call(text, call) : Found::kUnfinished;
  }
  if (found == Found::kUnfinished && !last) return false;

  header_seen_ = false;
  scanned_ = 0;
  if (found == Found::kUnfinished) {
    cut_short_ = true;
    emit(held_.size(), out);
    return false;
  }
  if (found == Found::kNo) {
    emit(space + kCallOpen.size(), out);
    return true;
  }
  calls_.push_back(typed_call(call, *tools_));
  held_.erase(0, space + call.size);
  after_call_ = true;
  return true;
}

void ToolCallSplitter::emit(std::size_t size, std::string& out) {
  if (size == 0) return;
  out.append(held_, 0, size);
  held_.erase(0, size);
  after_call_ = false;
}

ParsedContent parse_tool_calls(std::string_view content, const Json& tools) {
  ToolCallSplitter splitter(tools);
  ParsedContent out;
  out.content = splitter.push(content);
  out.content += splitter.flush();
  out.calls = splitter.calls();
  out.complete = !splitter.cut_short();
  return out;
}

}  // namespace lockstep::text
