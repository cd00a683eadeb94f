// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/marking.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

using io::Json;

constexpr std::array<std::pair<char32_t, char32_t>, 3> kPrivateUse = {
    {{0xe000, 0xf8ff}, {0xf0000, 0xffffd}, {0x100000, 0x10fffd}}};

// Which private-use characters have been seen.
class PrivateUse {
 public:
  void see(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      if (byte < 0xee) {  // no private-use character begins with less, and few texts have more
        ++at;
        continue;
      }
      const Utf8Unit unit = read_utf8(text.substr(at));
      if (unit.kind == Utf8Unit::Kind::kCharacter) seen_[unit.code_point] = true;
      at += unit.size;
    }
  }

  void see_all(const Json& value) {
    if (value.is_string()) see(value.as_string());
    if (value.is_array()) {
      for (const Json& item : value.as_array())
        see_all(item);
    }
    if (value.is_object()) {
      for (const auto& [key, item] : value.as_object()) {
        see(key);
        see_all(item);
      }
    }
  }

  // Takes the first one not seen.
  std::optional<char32_t> take() {
    for (const auto& [first, last] : kPrivateUse) {
      for (char32_t c = first; c <= last; ++c) {
        if (seen_[c]) continue;
        seen_[c] = true;
        return c;
      }
    }
    return std::nullopt;
  }

 private:
  std::vector<bool> seen_ = std::vector<bool>(0x110000, false);  // by code point
};

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= '\x1f');
}

std::string_view without_end_space(std::string_view text) {
  while (!text.empty() && is_space(text.back()))
    text.remove_suffix(1);
  return text;
}

std::string_view without_front_space(std::string_view text) {
  while (!text.empty() && is_space(text.front()))
    text.remove_prefix(1);
  return text;
}

// Some proper, non-empty prefix of `literal` ends `text`.
bool ends_in_part(std::string_view text, std::string_view literal) {
  for (std::size_t size = std::min(text.size(), literal.size() - 1); size > 0; --size) {
    if (text.ends_with(literal.substr(0, size))) return true;
  }
  return false;
}

// Some proper, non-empty suffix of `literal` begins `text`.
bool begins_in_part(std::string_view text, std::string_view literal) {
  for (std::size_t size = std::min(text.size(), literal.size() - 1); size > 0; --size) {
    if (text.starts_with(literal.substr(literal.size() - size))) return true;
  }
  return false;
}

bool contains(const std::vector<std::size_t>& sorted, std::size_t value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

}  // namespace

std::string Marks::both() const {
  std::string out;
  append_utf8(inside, out);
  append_utf8(tag, out);
  return out;
}

Result<Marker> Marker::create(const std::vector<AddedToken>& added,
                              const std::vector<std::string_view>& texts,
                              const std::vector<const Json*>& values) {
  PrivateUse used;
  for (const AddedToken& token : added)
    used.see(token.content);
  for (const std::string_view text : texts)
    used.see(text);
  for (const Json* value : values)
    used.see_all(*value);
  const std::optional<char32_t> inside = used.take();
  const std::optional<char32_t> tag = used.take();
  if (!inside || !tag) {
    return Error{ErrorCode::kLimit,
                 "the conversation uses every private-use character of Unicode, and two are needed "
                 "to mark it; leave some out",
                 "messages"};
  }
  return Marker(added, Marks{.inside = *inside, .tag = *tag});
}

Marker::Marker(const std::vector<AddedToken>& added, Marks marks)
    : begins_literal_(256, false), marks_(marks) {
  for (const AddedToken& token : added) {
    literals_.push_back(token.content);
    begins_literal_[static_cast<unsigned char>(token.content.front())] = true;
  }
}

std::string Marker::mark_text(std::string_view text, bool think_tags) const {
  std::vector<std::pair<std::size_t, char32_t>> marks;  // in front of which byte
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!begins_literal_[static_cast<unsigned char>(text[at])]) continue;
    const std::string_view rest = text.substr(at);
    for (const std::string& literal : literals_) {
      if (!rest.starts_with(literal)) continue;
      const std::size_t first_size = read_utf8(literal).size;
      const bool is_tag = think_tags && (literal == "<think>" || literal == "</think>");
      if (is_tag || first_size == literal.size()) {
        marks.emplace_back(at, marks_.tag);
        marks.emplace_back(at + literal.size(), marks_.tag);
      } else {
        marks.emplace_back(at + first_size, marks_.inside);
      }
    }
  }
  // Templates trim, so ends are looked at with and without the space around them.
  const std::string_view front = without_front_space(text);
  const std::string_view back = without_end_space(text);
  for (const std::string& literal : literals_) {
    if (begins_in_part(text, literal)) marks.emplace_back(0, marks_.inside);
    if (begins_in_part(front, literal))
      marks.emplace_back(text.size() - front.size(), marks_.inside);
    if (ends_in_part(back, literal)) marks.emplace_back(back.size(), marks_.inside);
    if (ends_in_part(text, literal)) marks.emplace_back(text.size(), marks_.inside);
  }
  // Inside marks first, so that tag marks stay next to what they enclose when both meet.
  std::sort(marks.begin(), marks.end());
  marks.erase(std::unique(marks.begin(), marks.end()), marks.end());
  std::string out;
  std::size_t copied = 0;
  for (const auto& [at, mark] : marks) {
    out += text.substr(copied, at - copied);
    append_utf8(mark, out);
    copied = at;
  }
  return out += text.substr(copied);
}

Json Marker::mark_value(const Json& value) const {
  if (value.is_string()) return Json(mark_text(value.as_string(), false));
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value.as_array())
      out.push_back(mark_value(item));
    return out;
  }
  if (value.is_object()) {
    Json out = Json::object();
    for (const auto& [key, item] : value.as_object()) {
      out.as_object().emplace_back(mark_text(key, false), mark_value(item));
    }
    return out;
  }
  return value;
}

Json Marker::mark_content(const Json& content, bool think_tags) const {
  if (content.is_string()) return Json(mark_text(content.as_string(), think_tags));
  if (!content.is_array()) return mark_value(content);
  Json out = Json::array();
  for (const Json& part : content.as_array()) {
    Json marked = mark_value(part);
    const Json* text = part.find("text");
    if (text != nullptr && text->is_string()) {
      marked.set("text", Json(mark_text(text->as_string(), think_tags)));
    }
    out.push_back(std::move(marked));
  }
  return out;
}

Json Marker::mark_messages(const Json& messages) const {
  Json out = Json::array();
  for (const Json& message : messages.as_array()) {
    const Json* role = message.find("role");
    const bool assistant = role != nullptr && role->is_string() && role->as_string() == "assistant";
    Json marked = Json::object();
    for (const auto& [key, value] : message.as_object()) {
      marked.as_object().emplace_back(mark_text(key, false), key == "content"
                                                                 ? mark_content(value, assistant)
                                                                 : mark_value(value));
    }
    out.push_back(std::move(marked));
  }
  return out;
}

UnmarkedText unmark(std::string_view rendered, const Marks& marks) {
  std::string inside, tag;
  append_utf8(marks.inside, inside);
  append_utf8(marks.tag, tag);
  UnmarkedText out;
  std::size_t copied = 0;
  for (std::size_t at = 0; at < rendered.size();) {
    const std::string_view rest = rendered.substr(at);
    const bool is_inside = rest.starts_with(inside);
    if (!is_inside && !rest.starts_with(tag)) {
      ++at;
      continue;
    }
    out.text += rendered.substr(copied, at - copied);
    (is_inside ? out.inside : out.tags).push_back(out.text.size());
    at += is_inside ? inside.size() : tag.size();
    copied = at;
  }
  out.text += rendered.substr(copied);
  return out;
}

Result<std::vector<std::int32_t>> encode_unmarked(const Tokenizer& tokenizer,
                                                  const UnmarkedText& prompt) {
  std::vector<std::vector<const AddedToken*>> by_first_byte(256);
  for (const AddedToken& token : tokenizer.added_tokens()) {
    by_first_byte[static_cast<unsigned char>(token.content.front())].push_back(&token);
  }
  const std::string_view text = prompt.text;
  const auto forbidden = [&](std::size_t begin, std::size_t end) {
    const auto next = std::upper_bound(prompt.inside.begin(), prompt.inside.end(), begin);
    if (next != prompt.inside.end() && *next < end) return true;
    return contains(prompt.tags, begin) && contains(prompt.tags, end);
  };
  const auto match_at = [&](std::size_t at) -> const AddedToken* {
    const AddedToken* longest = nullptr;
    for (const AddedToken* token : by_first_byte[static_cast<unsigned char>(text[at])]) {
      if (longest != nullptr && token->content.size() <= longest->content.size()) continue;
      if (!text.substr(at).starts_with(token->content)) continue;
      if (!forbidden(at, at + token->content.size())) longest = token;
    }
    return longest;
  };

  std::vector<std::int32_t> ids;
  std::size_t piece = 0;
  const auto end_piece = [&](std::size_t end) -> Status {
    LOCKSTEP_TRY(const auto part,
                 tokenizer.encode(text.substr(piece, end - piece), AddedTokens::kIgnore));
    ids.insert(ids.end(), part.begin(), part.end());
    return {};
  };
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = match_at(at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    LOCKSTEP_TRY_STATUS(end_piece(at));
    ids.push_back(token->id);
    at += token->content.size();
    piece = at;
  }
  LOCKSTEP_TRY_STATUS(end_piece(text.size()));
  return ids;
}

}  // namespace lockstep::text
