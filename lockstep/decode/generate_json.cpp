// SPDX-License-Identifier: Apache-2.0
// The JSON of requests and answers (decisions are in docs/commands.md).
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <sys/resource.h>
#include <type_traits>
#include <utility>

#include "lockstep/base/hex.h"
#include "lockstep/decode/generate.h"

namespace lockstep::decode {
namespace {

Error wrong_kind(const std::string& key, const char* expected, const io::Json& found) {
  return {ErrorCode::kInvalidArgument,
          std::string("should be ") + expected + ", and is " + found.kind_name(), key};
}

using Setter = std::function<Status(GenerateRequest&, const std::string& key, const io::Json&)>;

template <class Member>
Setter text_field(Member GenerateRequest::* member) {
  return [member](GenerateRequest& r, const std::string& key, const io::Json& value) -> Status {
    if (!value.is_string()) return wrong_kind(key, "a string", value);
    r.*member = value.as_string();
    return {};
  };
}

template <class Member>
Setter bool_field(Member GenerateRequest::* member) {
  return [member](GenerateRequest& r, const std::string& key, const io::Json& value) -> Status {
    if (!value.is_bool()) return wrong_kind(key, "true or false", value);
    r.*member = value.as_bool();
    return {};
  };
}

Setter number_field(std::optional<double> GenerateRequest::* member) {
  return [member](GenerateRequest& r, const std::string& key, const io::Json& value) -> Status {
    if (!value.is_number()) return wrong_kind(key, "a number", value);
    r.*member = value.as_double();
    return {};
  };
}

template <class Member>
Setter integer_field(Member GenerateRequest::* member, std::int64_t max) {
  return
      [member, max](GenerateRequest& r, const std::string& key, const io::Json& value) -> Status {
        if (!value.is_integer()) return wrong_kind(key, "a whole number", value);
        if (value.as_int() < 0 || value.as_int() > max) {
          return Error{ErrorCode::kInvalidArgument, "is out of range: " + value.dump(), key};
        }
        if constexpr (std::is_same_v<Member, int>) {
          r.*member = static_cast<int>(value.as_int());
        } else {
          r.*member = value.as_int();
        }
        return {};
      };
}

// null is the same as absent.
Setter array_field(io::Json GenerateRequest::* member) {
  return [member](GenerateRequest& r, const std::string& key, const io::Json& value) -> Status {
    if (value.is_null()) return {};
    if (!value.is_array()) return wrong_kind(key, "an array", value);
    r.*member = value;
    return {};
  };
}

Status set_seed(GenerateRequest& r, const std::string& key, const io::Json& value) {
  if (!value.is_integer() || (value.as_int() < 0)) {
    return wrong_kind(key, "a whole number of 0 or more", value);
  }
  r.seed = value.as_uint();
  return {};
}

Status set_ids(GenerateRequest& r, const std::string& key, const io::Json& value) {
  if (!value.is_array()) return wrong_kind(key, "an array of token ids", value);
  std::vector<std::int32_t> ids;
  for (const io::Json& id : value.as_array()) {
    if (!id.is_integer() || id.as_int() < 0 ||
        id.as_int() > std::numeric_limits<std::int32_t>::max()) {
      return Error{ErrorCode::kInvalidArgument, "holds " + id.dump() + ", which is no token id",
                   key};
    }
    ids.push_back(static_cast<std::int32_t>(id.as_int()));
  }
  r.prompt_ids = std::move(ids);
  return {};
}

Status set_stops(GenerateRequest& r, const std::string& key, const io::Json& value) {
  if (value.is_string()) {
    r.stops = {value.as_string()};
    return {};
  }
  if (!value.is_array()) return wrong_kind(key, "a string or an array of strings", value);
  for (const io::Json& stop : value.as_array()) {
    if (!stop.is_string()) return wrong_kind(key, "an array of strings", stop);
    r.stops.push_back(stop.as_string());
  }
  return {};
}

Status set_depth(GenerateRequest& r, const std::string& key, const io::Json& value) {
  if (!value.is_string() && !value.is_integer()) {
    return wrong_kind(key, "\"auto\" or a whole number", value);
  }
  LOCKSTEP_TRY(r.draft_depth,
               parse_draft_depth(value.is_string() ? value.as_string() : value.dump()));
  return {};
}

Status set_logit_bias(GenerateRequest& r, const std::string& key, const io::Json& value) {
  if (!value.is_object()) return wrong_kind(key, "an object of token id to number", value);
  for (const auto& [id, bias] : value.as_object()) {
    const auto ids = parse_ids(id);
    if (!ids.ok() || ids->size() != 1 || !bias.is_number()) {
      return Error{ErrorCode::kInvalidArgument,
                   "'" + id + "': " + bias.dump() + " is no pair of token id and number", key};
    }
    r.logit_bias.emplace_back(ids->front(), static_cast<float>(bias.as_double()));
  }
  return {};
}

const std::map<std::string, Setter>& setters() {
  using R = GenerateRequest;
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  static const std::map<std::string, Setter> table = {
      {"prompt", text_field(&R::prompt)},
      {"messages", array_field(&R::messages)},
      {"prompt_ids", set_ids},
      {"system", text_field(&R::system)},
      {"tools", array_field(&R::tools)},
      {"raw", bool_field(&R::raw)},
      {"thinking", bool_field(&R::thinking)},
      {"preserve_thinking", bool_field(&R::preserve_thinking)},
      {"temperature", number_field(&R::temperature)},
      {"top_p", number_field(&R::top_p)},
      {"min_p", number_field(&R::min_p)},
      {"presence_penalty", number_field(&R::presence_penalty)},
      {"frequency_penalty", number_field(&R::frequency_penalty)},
      {"repetition_penalty", number_field(&R::repetition_penalty)},
      {"top_k", integer_field(&R::top_k, kAny)},
      {"seed", set_seed},
      {"logit_bias", set_logit_bias},
      {"max_tokens", integer_field(&R::tokens_max, kAny)},
      {"stop", set_stops},
      {"ignore_eos", bool_field(&R::ignore_eos)},
      {"logprobs", integer_field(&R::logprobs, 1 << 20)},
      {"draft_depth", set_depth},
  };
  return table;
}

io::Json logprob_json(const text::Tokenizer& tokenizer, std::int32_t id, double logprob) {
  io::Json json = token_json(tokenizer, id);
  json.set("logprob", logprob);
  return json;
}

io::Json tokens_json(const text::Tokenizer& tokenizer, const Outcome& outcome) {
  io::Json tokens = io::Json::array();
  for (std::size_t i = 0; i < outcome.logprobs.size(); ++i) {
    io::Json token = logprob_json(tokenizer, outcome.token_ids[i], outcome.logprobs[i].chosen);
    io::Json top = io::Json::array();
    for (const TokenLogprob& t : outcome.logprobs[i].top) {
      top.push_back(logprob_json(tokenizer, t.token, t.logprob));
    }
    token.set("top", std::move(top));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

io::Json timings_json(const Runtime& runtime, const Outcome& outcome) {
  const auto per_second = [](std::size_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  // The first token comes out of the prefill pass.
  const std::size_t decoded = outcome.token_ids.empty() ? 0 : outcome.token_ids.size() - 1;
  io::Json json = io::Json::object();
  json.set("load_s", runtime.load_s());
  json.set("prefill_s", outcome.prefill_s);
  json.set("decode_s", outcome.decode_s);
  json.set("prefill_tokens_per_s",
           per_second(static_cast<std::size_t>(outcome.prompt_tokens), outcome.prefill_s));
  json.set("decode_tokens_per_s", per_second(decoded, outcome.decode_s));
  json.set("peak_memory_bytes", std::int64_t{usage.ru_maxrss} * 1024);
  return json;
}

io::Json speculation_json(int depth_policy, const SpeculationStats& stats) {
  const auto counts = [](const std::vector<std::int64_t>& values) {
    io::Json array = io::Json::array();
    for (const std::int64_t value : values)
      array.push_back(value);
    return array;
  };
  io::Json json = io::Json::object();
  json.set("depth_policy", depth_policy == kAutoDepth ? io::Json("auto") : io::Json(depth_policy));
  json.set("rounds", stats.rounds);
  json.set("drafted", stats.drafted);
  json.set("accepted", stats.accepted);
  json.set("tried_per_depth", counts(stats.tried_per_depth));
  json.set("accepted_per_depth", counts(stats.accepted_per_depth));
  json.set("verify_s", stats.verify_s);
  json.set("draft_s", stats.draft_s);
  json.set("commit_s", stats.commit_s);
  json.set("expert_union_mean", stats.expert_union_mean);
  return json;
}

}  // namespace

Result<GenerateRequest> parse_request(const io::Json& json,
                                      const std::vector<std::string>& ignored) {
  if (!json.is_object()) return wrong_kind("request", "an object", json);
  GenerateRequest request;
  for (const auto& [key, value] : json.as_object()) {
    if (std::find(ignored.begin(), ignored.end(), key) != ignored.end()) continue;
    const auto setter = setters().find(key);
    if (setter == setters().end()) {
      std::string known;
      for (const auto& [name, unused] : setters())
        known += (known.empty() ? "" : ", ") + name;
      return Error{ErrorCode::kInvalidArgument, "is no known field; known are " + known, key};
    }
    LOCKSTEP_TRY_STATUS(setter->second(request, key, value));
  }
  return request;
}

io::Json token_json(const text::Tokenizer& tokenizer, std::int32_t id) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  io::Json json = io::Json::object();
  json.set("id", id);
  json.set("text", bytes);
  json.set("bytes", hex(bytes));
  return json;
}

std::string finish_reason(const GenerateResult& result) {
  switch (result.outcome.reason) {
    case FinishReason::kStop:
      return result.answer.tool_calls.empty() ? "stop" : "tool_calls";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

io::Json to_json(const Runtime& runtime, const GenerateRequest& request,
                 const GenerateResult& result) {
  const Outcome& outcome = result.outcome;
  io::Json calls = io::Json::array();
  for (const text::ToolCall& call : result.answer.tool_calls) {
    io::Json json = io::Json::object();
    json.set("name", call.name);
    json.set("arguments", call.arguments);
    calls.push_back(std::move(json));
  }
  io::Json ids = io::Json::array();
  for (const std::int32_t id : outcome.token_ids)
    ids.push_back(id);

  io::Json json = io::Json::object();
  json.set("text", result.answer.text);
  json.set("raw_text", result.answer.raw_text);
  json.set("reasoning", result.answer.reasoning);
  json.set("tool_calls", std::move(calls));
  json.set("token_ids", std::move(ids));
  json.set("seed", result.seed);
  json.set("prompt_tokens", outcome.prompt_tokens);
  json.set("completion_tokens", outcome.token_ids.size());
  json.set("finish_reason", finish_reason(result));
  if (request.logprobs >= 0) json.set("tokens", tokens_json(runtime.tokenizer(), outcome));
  json.set("timings", timings_json(runtime, outcome));
  json.set("speculation", speculation_json(request.draft_depth, outcome.speculation));
  return json;
}

}  // namespace lockstep::decode
