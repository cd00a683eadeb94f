// SPDX-License-Identifier: Apache-2.0
// Requests and answers in words: prompts or conversations in, text, reasoning and tool calls out.
// The JSON names are those of `lockstep generate --json` and `lockstep batch`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/base/stop_flag.h"
#include "lockstep/decode/engine.h"
#include "lockstep/decode/runtime.h"
#include "lockstep/io/json.h"
#include "lockstep/text/answer.h"

namespace lockstep::decode {

// Exactly one of prompt, messages and prompt_ids. Unset sampling fields take the artifact's
// generation_config.
struct GenerateRequest {
  std::optional<std::string> prompt;  // a user message, or with `raw` the text as it is
  io::Json messages;                  // OpenAI-style array
  std::optional<std::vector<std::int32_t>> prompt_ids;
  std::string system;  // put in front of `prompt`
  io::Json tools;      // array, or null
  bool raw = false;    // no chat template; added tokens in the text count
  std::optional<bool> thinking;
  std::optional<bool> preserve_thinking;

  std::optional<double> temperature, top_p, min_p;
  std::optional<double> presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<std::int64_t> top_k;
  std::optional<std::uint64_t> seed;  // unset: a random one, reported in the answer
  std::vector<std::pair<std::int32_t, float>> logit_bias;

  std::int64_t tokens_max = -1;
  std::vector<std::string> stops;
  bool ignore_eos = false;
  int logprobs = -1;
  int draft_depth = kAutoDepth;
};

// Reads a request by its JSON names; a field that is unknown or of the wrong kind is an error.
// `ignored` are keys that belong to the caller ("id").
Result<GenerateRequest> parse_request(const io::Json& json,
                                      const std::vector<std::string>& ignored = {});
// "auto" or 0..8.
Result<int> parse_draft_depth(const std::string& text);
// "1,2,3" (spaces allowed).
Result<std::vector<std::int32_t>> parse_ids(const std::string& text);

// What can be checked without a model: that there is one prompt, that no setting contradicts
// another, and ranges. `where` is the JSON name. prepare() does it as well.
Status validate(const GenerateRequest& request);

// The messages that go into the template: those given, or system message and prompt.
io::Json conversation(const GenerateRequest& request);

// A request that is ready for an engine.
struct PreparedRequest {
  Request request;
  text::AnswerStream::Options answer;
  std::string prompt_text;  // as rendered; empty for prompt_ids
};
Result<PreparedRequest> prepare(const Runtime& runtime, const GenerateRequest& request);

struct GenerateResult {
  text::Answer answer;
  Outcome outcome;
  std::uint64_t seed = 0;
};

// {id, text, bytes}: the token as text and its exact bytes in hex.
io::Json token_json(const text::Tokenizer& tokenizer, std::int32_t id);

// "stop", "length", "tool_calls", "cancelled" or "error".
std::string finish_reason(const GenerateResult& result);
// All keys but `id`.
io::Json to_json(const Runtime& runtime, const GenerateRequest& request,
                 const GenerateResult& result);

// One request on its way: turns committed tokens into text, and stops at stop strings.
class AnswerSink : public TokenSink {
 public:
  using OnDelta = std::function<void(const text::AnswerStream::Delta&)>;
  AnswerSink(const text::Tokenizer& tokenizer, text::AnswerStream::Options options,
             OnDelta on_delta = nullptr);
  bool on_token(std::int32_t token) override;
  // Call once, when the request has ended.
  text::Answer finish();

 private:
  text::AnswerStream stream_;
  OnDelta on_delta_;
};

// Runs one request on `engine`, which has no other. `stop` cancels it; what was generated so far is
// returned.
Result<GenerateResult> generate(const Runtime& runtime, Engine& engine,
                                const GenerateRequest& request,
                                AnswerSink::OnDelta on_delta = nullptr,
                                const StopFlag* stop = nullptr);
// The same, on an engine of its own.
Result<GenerateResult> generate(const Runtime& runtime, const GenerateRequest& request);

}  // namespace lockstep::decode
