// SPDX-License-Identifier: Apache-2.0
#include "lockstep/text/tokenizer.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <utility>

#include "lockstep/base/limits.h"
#include "lockstep/io/json.h"
#include "lockstep/text/bridge.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

using io::Json;

std::optional<std::int64_t> to_id(std::string_view text) {
  std::int64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (id < 0 || id >= limits::kVocabMax) return std::nullopt;
  return id;
}

// The added tokens that tokenizer_config.json lists, as the bridge takes them.
Result<Json> listed_tokens(const std::string& path) {
  const Result<Json> config = io::read_json_file(path);
  if (!config.ok()) {
    if (config.error().code == ErrorCode::kNotFound) return Json::array();
    return config.error();
  }
  const Json* decoder = config->find("added_tokens_decoder");
  if (decoder == nullptr || !decoder->is_object()) return Json::array();
  std::vector<std::pair<std::int64_t, Json>> tokens;
  for (const auto& [key, value] : decoder->as_object()) {
    const std::optional<std::int64_t> id = to_id(key);
    const Json* content = value.find("content");
    if (!id || content == nullptr || !content->is_string()) {
      return Error{ErrorCode::kFormat,
                   "added_tokens_decoder[\"" + key +
                       "\"] should be a token id with an object that has the token's content",
                   path};
    }
    Json token = value;
    token.set("id", Json(*id));
    tokens.emplace_back(*id, std::move(token));
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Json sorted = Json::array();
  for (auto& [id, token] : tokens)
    sorted.push_back(std::move(token));
  return sorted;
}

}  // namespace

struct Tokenizer::Impl {
  BridgeTokenizer bridge;
  std::vector<std::string> tokens;  // bytes by id
  std::vector<AddedToken> added;    // by id
  std::unordered_map<std::string_view, std::int32_t> ids;

  const AddedToken* find_added(std::int32_t id) const {
    const auto at = std::lower_bound(added.begin(), added.end(), id,
                                     [](const AddedToken& t, std::int32_t i) { return t.id < i; });
    return at != added.end() && at->id == id ? &*at : nullptr;
  }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::open(const std::string& model_dir) {
  const std::string path = model_dir + "/tokenizer.json";
  LOCKSTEP_TRY(const std::string json, io::read_file(path, limits::kJsonFileBytesMax));
  LOCKSTEP_TRY(const Json listed, listed_tokens(model_dir + "/tokenizer_config.json"));
  LOCKSTEP_TRY(BridgeTokenizer bridge, BridgeTokenizer::open(json, listed.dump(), path));
  LOCKSTEP_TRY(std::vector<std::string> tokens, bridge.vocabulary());
  LOCKSTEP_TRY(const std::string added_json, bridge.added_tokens_json());
  LOCKSTEP_TRY(const Json added, io::parse_json(added_json, path));

  auto impl = std::make_unique<Impl>(Impl{std::move(bridge), std::move(tokens), {}, {}});
  for (const Json& token : added.as_array()) {
    impl->added.push_back({.id = static_cast<std::int32_t>(token.find("id")->as_int()),
                           .content = token.find("content")->as_string(),
                           .special = token.find("special")->as_bool()});
  }
  for (std::size_t id = 0; id < impl->tokens.size(); ++id) {
    if (impl->tokens[id].empty()) continue;
    impl->ids.emplace(impl->tokens[id], static_cast<std::int32_t>(id));
  }
  for (const AddedToken& token : impl->added)
    impl->ids[token.content] = token.id;
  return Tokenizer(std::move(impl));
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text, AddedTokens mode) const {
  if (text.size() > limits::kPromptBytesMax) {
    return Error{ErrorCode::kLimit,
                 "text of " + std::to_string(text.size()) + " bytes is longer than the limit of " +
                     std::to_string(limits::kPromptBytesMax),
                 ""};
  }
  if (const std::size_t at = find_invalid_utf8(text); at != std::string_view::npos) {
    return Error{
        ErrorCode::kInvalidArgument,
        "text isn't valid UTF-8 at byte " + std::to_string(at) + "; convert it to UTF-8 first", ""};
  }
  if (text.empty()) return std::vector<std::int32_t>();
  return impl_->bridge.encode(text, mode == AddedTokens::kMatch);
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || id >= size()) return {};
  return impl_->tokens[static_cast<std::size_t>(id)];
}

std::int32_t Tokenizer::size() const {
  return static_cast<std::int32_t>(impl_->tokens.size());
}

bool Tokenizer::is_special(std::int32_t id) const {
  const AddedToken* token = impl_->find_added(id);
  return token != nullptr && token->special;
}

bool Tokenizer::is_added(std::int32_t id) const {
  return impl_->find_added(id) != nullptr;
}

std::optional<std::int32_t> Tokenizer::find(std::string_view token) const {
  const auto at = impl_->ids.find(token);
  if (at == impl_->ids.end()) return std::nullopt;
  return at->second;
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const {
  return impl_->added;
}

}  // namespace lockstep::text
