// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cli/parity_prompts.h"

#include <algorithm>
#include <array>
#include <random>
#include <string_view>
#include <utility>

#include "lockstep/base/limits.h"
#include "lockstep/decode/generate.h"

namespace lockstep::cli {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::array<const char*, 4> kQuestions = {
    "What is 17 times 23? Explain how you found it.",
    "Name three animals that live in the sea, as a JSON list.",
    "Write two sentences about a lighthouse in winter.",
    "Which of these is the largest: 812, 1204 or 977?",
};

constexpr std::array<const char*, 3> kTexts = {
    "The function returns a new list with the elements of the first argument, in reverse order. If "
    "the argument is empty,",
    "def read_lines(path):\n    \"\"\"Yields the lines of a file without their ends.\"\"\"\n    "
    "with",
    "An index can be used to speed up a query when the planner decides that reading it costs less "
    "than a sequential scan of the table. For example, a condition such as a = 5 AND b >= 42 can "
    "use an index on (a, b); the rows that are found are then",
};

// Around the grain of 64, a single token, and several chunks.
constexpr std::array<std::size_t, 6> kRandomLengths = {1, 63, 64, 65, 130, 300};

Result<Ids> ids_of(const decode::Runtime& runtime, decode::GenerateRequest request) {
  LOCKSTEP_TRY(auto prepared, decode::prepare(runtime, request));
  return std::move(prepared.request.prompt);
}

Result<Ids> ids_of_text(const decode::Runtime& runtime, std::string text) {
  decode::GenerateRequest request;
  request.prompt = std::move(text);
  request.raw = true;
  return ids_of(runtime, std::move(request));
}

Result<Ids> ids_of_json(const decode::Runtime& runtime, const io::Json& entry) {
  if (entry.is_string()) return ids_of_text(runtime, entry.as_string());
  io::Json object = entry;
  if (entry.is_array()) {
    object = io::Json::object();
    object.set("prompt_ids", entry);
  }
  if (!object.is_object()) {
    return Error{
        ErrorCode::kInvalidArgument,
        std::string("should be a text, an array of ids or a request, and is ") + entry.kind_name(),
        ""};
  }
  constexpr std::array<std::string_view, 9> kAllowed = {
      "id",    "prompt", "messages", "prompt_ids",       "system",
      "tools", "raw",    "thinking", "preserve_thinking"};
  for (const auto& [key, value] : object.as_object()) {
    if (std::find(kAllowed.begin(), kAllowed.end(), key) == kAllowed.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   "has the field '" + key +
                       "'; parity chooses the settings, only what makes the prompt is allowed",
                   ""};
    }
  }
  LOCKSTEP_TRY(auto request, decode::parse_request(object, {"id"}));
  return ids_of(runtime, std::move(request));
}

Error at_entry(const Error& error, const std::string& path, std::size_t number) {
  std::string where = path + ": prompt " + std::to_string(number);
  if (!error.where.empty()) where += ": " + error.where;
  return {error.code, error.message, std::move(where)};
}

}  // namespace

Result<std::vector<Ids>> built_in_prompts(const decode::Runtime& runtime, std::uint64_t seed) {
  std::vector<Ids> prompts;
  if (runtime.chat_template().ok()) {
    for (const char* question : kQuestions) {
      decode::GenerateRequest request;
      request.prompt = question;
      LOCKSTEP_TRY(Ids ids, ids_of(runtime, std::move(request)));
      prompts.push_back(std::move(ids));
    }
  }
  for (const char* text : kTexts) {
    LOCKSTEP_TRY(Ids ids, ids_of_text(runtime, text));
    prompts.push_back(std::move(ids));
  }
  std::mt19937_64 random(seed);
  const auto vocab = static_cast<std::uint64_t>(runtime.tokenizer().size());
  const auto context = static_cast<std::size_t>(runtime.model().config().context_tokens_max);
  for (const std::size_t length : kRandomLengths) {
    if (length >= context) continue;
    Ids ids(length);
    for (std::int32_t& id : ids)
      id = static_cast<std::int32_t>(random() % vocab);
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

Result<std::vector<Ids>> load_prompts(const decode::Runtime& runtime, const std::string& path) {
  LOCKSTEP_TRY(const std::string text, io::read_file(path, limits::kPromptBytesMax));
  std::vector<Ids> prompts;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '[') {
    LOCKSTEP_TRY(const io::Json json, io::parse_json(text, path));
    for (const io::Json& entry : json.as_array()) {
      auto ids = ids_of_json(runtime, entry);
      if (!ids.ok()) return at_entry(ids.error(), path, prompts.size() + 1);
      prompts.push_back(std::move(*ids));
    }
  } else {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      std::string line = text.substr(begin, end - begin);
      begin = end + 1;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.empty()) continue;
      auto ids = ids_of_text(runtime, std::move(line));
      if (!ids.ok()) return at_entry(ids.error(), path, prompts.size() + 1);
      prompts.push_back(std::move(*ids));
    }
  }
  if (prompts.empty()) {
    return Error{ErrorCode::kInvalidArgument, "holds no prompt; give at least one", path};
  }
  return prompts;
}

}  // namespace lockstep::cli
