// SPDX-License-Identifier: Apache-2.0
#include "lockstep/decode/generate.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>
#include <utility>

#include "lockstep/base/limits.h"

namespace lockstep::decode {
namespace {

Status check_stops(const std::vector<std::string>& stops) {
  if (stops.size() > limits::kStopStringsMax) {
    return Error{ErrorCode::kLimit,
                 "has " + std::to_string(stops.size()) + " strings; at most " +
                     std::to_string(limits::kStopStringsMax) + " are allowed",
                 "stop"};
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) {
      return Error{ErrorCode::kInvalidArgument, "holds an empty string, which would stop at once",
                   "stop"};
    }
    if (stop.size() > limits::kStopStringBytesMax) {
      return Error{ErrorCode::kLimit,
                   "holds a string of " + std::to_string(stop.size()) + " bytes; at most " +
                       std::to_string(limits::kStopStringBytesMax) + " are allowed",
                   "stop"};
    }
  }
  return {};
}

SamplingParams sampling(const spec::GenerationConfig& defaults, const GenerateRequest& r) {
  SamplingParams p;
  const bool sample = defaults.do_sample.value_or(true);
  p.temperature =
      static_cast<float>(r.temperature.value_or(sample ? defaults.temperature.value_or(1.0) : 0.0));
  p.top_k = static_cast<int>(std::min<std::int64_t>(r.top_k.value_or(defaults.top_k.value_or(0)),
                                                    std::numeric_limits<int>::max()));
  p.top_p = static_cast<float>(r.top_p.value_or(defaults.top_p.value_or(1.0)));
  p.min_p = static_cast<float>(r.min_p.value_or(defaults.min_p.value_or(0.0)));
  p.presence_penalty =
      static_cast<float>(r.presence_penalty.value_or(defaults.presence_penalty.value_or(0.0)));
  p.frequency_penalty = static_cast<float>(r.frequency_penalty.value_or(0.0));
  p.repetition_penalty =
      static_cast<float>(r.repetition_penalty.value_or(defaults.repetition_penalty.value_or(1.0)));
  p.logit_bias = r.logit_bias;
  p.seed = r.seed.value_or(0);
  return p;
}

// 53 bits, so that every JSON reader gives the seed back as it was.
std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) >> 11;
}

// All of the engine's request but the prompt, the seed if none was given, and the stop ids.
Request engine_request(const spec::GenerationConfig& defaults, const GenerateRequest& r) {
  Request request;
  request.sampling = sampling(defaults, r);
  request.tokens_max = r.tokens_max;
  request.draft_depth = r.draft_depth;
  request.logprobs = r.logprobs;
  return request;
}

Status check_form(const GenerateRequest& r) {
  const int forms = (r.prompt ? 1 : 0) + (r.messages.is_null() ? 0 : 1) + (r.prompt_ids ? 1 : 0);
  if (forms != 1) {
    return Error{ErrorCode::kInvalidArgument,
                 forms == 0 ? "no prompt: give one of prompt, messages and prompt_ids"
                            : "give only one of prompt, messages and prompt_ids",
                 "prompt"};
  }
  const bool templated = !r.prompt_ids && !r.raw;
  if (!templated &&
      (!r.tools.is_null() || !r.system.empty() || r.thinking || r.preserve_thinking)) {
    return Error{ErrorCode::kInvalidArgument,
                 "system, tools, thinking and preserve_thinking need the chat template, which raw "
                 "prompts and prompt_ids do not use",
                 "prompt"};
  }
  if (!r.messages.is_null() && (r.raw || !r.system.empty())) {
    return Error{ErrorCode::kInvalidArgument,
                 "messages carry their own system message and always use the chat template; leave "
                 "out raw and system",
                 "messages"};
  }
  return {};
}

// Only the template's own parts for pictures and clips make these ids; user text can't.
Status check_no_media(const spec::ModelConfig& config, const std::vector<std::int32_t>& ids) {
  for (const std::int32_t id : ids) {
    if (id == config.image_token_id || id == config.video_token_id) {
      return Error{ErrorCode::kUnsupported,
                   "hold a picture or a clip, which this version can't read; send text only",
                   "messages"};
    }
  }
  return {};
}

Status fill_prompt(const Runtime& runtime, const GenerateRequest& r, PreparedRequest& out) {
  if (r.prompt_ids) {
    out.request.prompt = *r.prompt_ids;
    return {};
  }
  if (r.prompt && r.prompt->size() > limits::kPromptBytesMax) {
    return Error{ErrorCode::kLimit,
                 "has " + std::to_string(r.prompt->size()) + " bytes; at most " +
                     std::to_string(limits::kPromptBytesMax) + " are allowed",
                 "prompt"};
  }
  if (r.raw) {
    LOCKSTEP_TRY(out.request.prompt,
                 runtime.tokenizer().encode(*r.prompt, text::AddedTokens::kMatch));
    out.prompt_text = *r.prompt;
    return {};
  }
  if (!runtime.chat_template().ok()) return runtime.chat_template().error();
  LOCKSTEP_TRY(auto chat,
               runtime.chat_template()->render(
                   runtime.tokenizer(), conversation(r), r.tools,
                   {.enable_thinking = r.thinking, .preserve_thinking = r.preserve_thinking}));
  LOCKSTEP_TRY_STATUS(check_no_media(runtime.artifact().config(), chat.ids));
  out.request.prompt = std::move(chat.ids);
  out.prompt_text = std::move(chat.text);
  out.answer.opens_reasoning = chat.opens_reasoning;
  return {};
}

}  // namespace

Result<int> parse_draft_depth(const std::string& text) {
  if (text == "auto") return kAutoDepth;
  int depth = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), depth);
  if (error != std::errc() || end != text.data() + text.size() || depth < 0 ||
      depth > limits::kDraftDepthMax) {
    return Error{ErrorCode::kInvalidArgument,
                 "is '" + text + "'; give auto or 0 to " + std::to_string(limits::kDraftDepthMax),
                 "draft_depth"};
  }
  return depth;
}

Result<std::vector<std::int32_t>> parse_ids(const std::string& text) {
  std::vector<std::int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto skip_spaces = [&] {
    while (at != end && (*at == ' ' || *at == '\n' || *at == '\t'))
      ++at;
  };
  for (;;) {
    skip_spaces();
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc()) {
      return Error{ErrorCode::kInvalidArgument,
                   "is no list of token ids at byte " + std::to_string(at - text.data()) +
                       "; write them as 1,2,3",
                   "ids"};
    }
    ids.push_back(id);
    at = next;
    skip_spaces();
    if (at == end) return ids;
    if (*at != ',') {
      return Error{ErrorCode::kInvalidArgument,
                   "is no list of token ids at byte " + std::to_string(at - text.data()) +
                       "; write them as 1,2,3",
                   "ids"};
    }
    ++at;
  }
}

Status validate(const GenerateRequest& r) {
  LOCKSTEP_TRY_STATUS(check_form(r));
  LOCKSTEP_TRY_STATUS(check_stops(r.stops));
  const Request request = engine_request({}, r);
  LOCKSTEP_TRY_STATUS(validate(request));
  // Ids of the bias are held against the vocabulary when the request is submitted.
  return validate(request.sampling, std::numeric_limits<std::int32_t>::max());
}

io::Json conversation(const GenerateRequest& request) {
  if (!request.prompt) return request.messages;
  io::Json messages = io::Json::array();
  if (!request.system.empty()) {
    io::Json system = io::Json::object();
    system.set("role", "system");
    system.set("content", request.system);
    messages.push_back(std::move(system));
  }
  io::Json user = io::Json::object();
  user.set("role", "user");
  user.set("content", *request.prompt);
  messages.push_back(std::move(user));
  return messages;
}

Result<PreparedRequest> prepare(const Runtime& runtime, const GenerateRequest& r) {
  LOCKSTEP_TRY_STATUS(validate(r));
  PreparedRequest out;
  out.request = engine_request(runtime.defaults(), r);
  LOCKSTEP_TRY_STATUS(fill_prompt(runtime, r, out));
  if (!r.seed) out.request.sampling.seed = random_seed();
  if (!r.ignore_eos) out.request.stop_ids = runtime.stop_ids();
  out.answer.stops = r.stops;
  out.answer.tools = r.tools;
  return out;
}

AnswerSink::AnswerSink(const text::Tokenizer& tokenizer, text::AnswerStream::Options options,
                       OnDelta on_delta)
    : stream_(tokenizer, std::move(options)), on_delta_(std::move(on_delta)) {}

bool AnswerSink::on_token(std::int32_t token) {
  const text::AnswerStream::Delta delta = stream_.push(token);
  if (on_delta_) on_delta_(delta);
  return delta.stopped;
}

text::Answer AnswerSink::finish() {
  const text::AnswerStream::Delta delta = stream_.finish();
  if (on_delta_) on_delta_(delta);
  return stream_.answer();
}

Result<GenerateResult> generate(const Runtime& runtime, Engine& engine,
                                const GenerateRequest& request, AnswerSink::OnDelta on_delta,
                                const StopFlag* stop) {
  LOCKSTEP_TRY(PreparedRequest prepared, prepare(runtime, request));
  GenerateResult result;
  result.seed = prepared.request.sampling.seed;
  AnswerSink sink(runtime.tokenizer(), std::move(prepared.answer), std::move(on_delta));
  LOCKSTEP_TRY(const Engine::Id id, engine.submit(std::move(prepared.request), &sink));
  while (engine.step()) {
    if (stop != nullptr && stop->raised()) engine.cancel(id);
  }
  result.outcome = *engine.take_outcome(id);
  result.answer = sink.finish();
  if (result.outcome.reason == FinishReason::kError) {
    return Error{ErrorCode::kInconsistent, result.outcome.error, runtime.artifact().dir()};
  }
  return result;
}

Result<GenerateResult> generate(const Runtime& runtime, const GenerateRequest& request) {
  Engine engine(runtime.model(), runtime.tokenizer().size(), {.sequences_max = 1});
  return generate(runtime, engine, request);
}

}  // namespace lockstep::decode
