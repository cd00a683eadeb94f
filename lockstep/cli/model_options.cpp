// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cli/model_options.h"

#include <charconv>
#include <cstdlib>

#include "lockstep/base/limits.h"

namespace lockstep::cli {

void ModelOptions::declare(Arguments& arguments) {
  arguments.path("--model", &model_dir, "Folder of the model: config.json and safetensors");
  arguments.path("--drafter", &drafter_dir, "Folder of a standalone MTP drafter");
  arguments.choice("--backend", &backend, {"cpu", "reference"},
                   "What computes: cpu (default), or the slow scalar reference");
  arguments.text("--precision", &precision, "Arithmetic: f32 (default)");
  arguments.text("--isa", &isa, "Instruction set: scalar, avx2 or avx512 (default: the widest)");
  arguments.integer("--threads", &threads, "Threads (default: all logical CPUs)");
}

ops::BackendOptions ModelOptions::backend_options() const {
  constexpr std::int64_t kMax = limits::kThreadsMax + 1;
  const std::int64_t count = threads < 0 || threads > kMax ? kMax : threads;
  return {.name = backend, .precision = precision, .isa = isa, .threads = static_cast<int>(count)};
}

Result<std::unique_ptr<decode::Runtime>> ModelOptions::open(Console& console) const {
  if (model_dir.empty()) {
    return Error{ErrorCode::kInvalidArgument, "is missing; give the folder of a model", "--model"};
  }
  console.progress("loading " + model_dir);
  auto runtime = decode::Runtime::open(
      {.model_dir = model_dir, .drafter_dir = drafter_dir, .backend = backend_options()});
  console.end_progress();
  if (runtime.ok()) {
    for (const std::string& warning : (*runtime)->warnings()) console.note("warning: " + warning);
  }
  return runtime;
}

void SamplingOptions::declare(Arguments& arguments) {
  arguments.integer("--max-tokens", &tokens_max,
                    "Longest answer in tokens (default: to the end of the context)");
  arguments.number("--temperature", &temperature,
                   "0 is greedy (default: the model's generation_config)");
  arguments.integer("--top-k", &top_k, "Draw from the k most probable tokens; 0: all");
  arguments.number("--top-p", &top_p, "Draw from the smallest set of this probability");
  arguments.number("--min-p", &min_p, "Drop tokens below this share of the most probable one");
  arguments.number("--presence-penalty", &presence_penalty, "Subtracted from tokens of the answer");
  arguments.number("--frequency-penalty", &frequency_penalty,
                   "Subtracted per occurrence in the answer");
  arguments.number("--repetition-penalty", &repetition_penalty,
                   "Divides logits of tokens in prompt or answer");
  arguments.list("--logit-bias", &logit_bias, "ID:VALUE, added to one token's logit; repeatable");
  arguments.unsigned_integer("--seed", &seed, "Seed of the draw (default: random, reported)");
  arguments.list("--stop", &stops, "End the answer before this text; repeatable");
  arguments.flag("--ignore-eos", &ignore_eos, "Go on past end-of-turn tokens");
  arguments.text("--draft-depth", &draft_depth,
                 "Tokens drafted per round: auto (default) or 0 to 8; never changes the answer");
  arguments.choice("--thinking", &thinking, {"on", "off"},
                   "Ask for reasoning or not (default: as the template does)");
  arguments.flag("--preserve-thinking", &preserve_thinking, "Keep reasoning of earlier turns");
}

Status SamplingOptions::apply(decode::GenerateRequest& request) const {
  request.temperature = temperature;
  request.top_k = top_k;
  request.top_p = top_p;
  request.min_p = min_p;
  request.presence_penalty = presence_penalty;
  request.frequency_penalty = frequency_penalty;
  request.repetition_penalty = repetition_penalty;
  request.seed = seed;
  for (const std::string& entry : logit_bias) {
    const std::size_t colon = entry.find(':');
    const auto ids = decode::parse_ids(entry.substr(0, colon));
    char* end = nullptr;
    const std::string value = colon == std::string::npos ? "" : entry.substr(colon + 1);
    const float bias = std::strtof(value.c_str(), &end);
    if (!ids.ok() || ids->size() != 1 || value.empty() || *end != '\0') {
      return Error{ErrorCode::kInvalidArgument, "is '" + entry + "'; write it as ID:VALUE",
                   "--logit-bias"};
    }
    request.logit_bias.emplace_back(ids->front(), bias);
  }
  request.tokens_max = tokens_max;
  request.stops = stops;
  request.ignore_eos = ignore_eos;
  LOCKSTEP_TRY(request.draft_depth, decode::parse_draft_depth(draft_depth));
  if (!thinking.empty()) request.thinking = thinking == "on";
  if (preserve_thinking) request.preserve_thinking = true;
  return {};
}

Status load_messages(const std::string& path, decode::GenerateRequest& request) {
  LOCKSTEP_TRY(io::Json json, io::read_json_file(path));
  if (json.is_object()) {
    for (const auto& [key, value] : json.as_object()) {
      if (key != "messages" && key != "tools") {
        return Error{ErrorCode::kInvalidArgument,
                     "has the key '" + key + "'; allowed are messages and tools", path};
      }
    }
    if (const io::Json* tools = json.find("tools")) request.tools = *tools;
    const io::Json* messages = json.find("messages");
    if (messages == nullptr) {
      return Error{ErrorCode::kInvalidArgument, "has no key 'messages'", path};
    }
    io::Json array = *messages;
    json = std::move(array);
  }
  if (!json.is_array()) {
    return Error{ErrorCode::kInvalidArgument,
                 std::string("should hold an array of messages, and is ") + json.kind_name(), path};
  }
  request.messages = std::move(json);
  return {};
}

Status load_tools(const std::string& path, decode::GenerateRequest& request) {
  LOCKSTEP_TRY(request.tools, io::read_json_file(path));
  if (!request.tools.is_array()) {
    return Error{ErrorCode::kInvalidArgument,
                 std::string("should hold an array of tools, and is ") + request.tools.kind_name(),
                 path};
  }
  return {};
}

}  // namespace lockstep::cli
