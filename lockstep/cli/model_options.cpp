// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cli/model_options.h"

#include <charconv>
#include <system_error>
#include <utility>

#include "lockstep/base/limits.h"

namespace lockstep::cli {

void ModelOptions::declare(Arguments& arguments) {
  arguments.path("--model", &model_dir, "Folder of the model: config.json and safetensors");
  arguments.choice("--backend", &backend, {"cpu", "reference"},
                   "What computes: cpu (default), or the slow scalar reference");
  arguments.choice("--precision", &precision, {"f32"}, "Arithmetic: f32 (default)");
  arguments.choice("--isa", &isa, {"scalar", "avx2", "avx512"},
                   "Instruction set (default: the widest of this CPU)");
  arguments.integer("--threads", &threads, "Threads (default: all logical CPUs)");
}

void ModelOptions::declare_drafter(Arguments& arguments) {
  arguments.path("--drafter", &drafter_dir, "Folder of a standalone MTP drafter");
}

Status ModelOptions::check() const {
  if (model_dir.empty()) {
    return Error{ErrorCode::kInvalidArgument, "is missing; give the folder of a model", "--model"};
  }
  if (threads < 0 || threads > limits::kThreadsMax) {
    return Error{ErrorCode::kInvalidArgument,
                 "is " + std::to_string(threads) + "; give 1 to " +
                     std::to_string(limits::kThreadsMax) + ", or 0 for all logical CPUs",
                 "--threads"};
  }
  return {};
}

decode::RuntimeOptions ModelOptions::runtime_options() const {
  return {.model_dir = model_dir,
          .drafter_dir = drafter_dir,
          .backend = {.name = backend,
                      .precision = precision,
                      .isa = isa,
                      .threads = static_cast<int>(threads)}};
}

Result<std::unique_ptr<decode::Runtime>> ModelOptions::open(Console& console) const {
  console.progress("loading " + model_dir);
  auto runtime = decode::Runtime::open(runtime_options());
  console.end_progress();
  if (runtime.ok()) {
    for (const std::string& warning : (*runtime)->warnings())
      console.note("warning: " + warning);
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

Result<io::Json> SamplingOptions::to_json() const {
  io::Json json = io::Json::object();
  const auto set = [&json](const char* name, const auto& value) {
    if (value) json.set(name, *value);
  };
  set("max_tokens", tokens_max);
  set("temperature", temperature);
  set("top_k", top_k);
  set("top_p", top_p);
  set("min_p", min_p);
  set("presence_penalty", presence_penalty);
  set("frequency_penalty", frequency_penalty);
  set("repetition_penalty", repetition_penalty);
  set("seed", seed);
  io::Json bias = io::Json::object();
  for (const std::string& entry : logit_bias) {
    const std::size_t colon = entry.find(':');
    const char* const end = entry.data() + entry.size();
    const char* const begin = colon == std::string::npos ? end : entry.data() + colon + 1;
    double value = 0;
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || stop != end) {
      return Error{ErrorCode::kInvalidArgument, "is '" + entry + "'; write it as ID:VALUE",
                   "logit_bias"};
    }
    bias.set(entry.substr(0, colon), value);
  }
  if (bias.size() != 0) json.set("logit_bias", std::move(bias));
  io::Json stop_array = io::Json::array();
  for (const std::string& stop : stops)
    stop_array.push_back(stop);
  if (stop_array.size() != 0) json.set("stop", std::move(stop_array));
  if (ignore_eos) json.set("ignore_eos", true);
  json.set("draft_depth", draft_depth);
  if (!thinking.empty()) json.set("thinking", thinking == "on");
  if (preserve_thinking) json.set("preserve_thinking", true);
  return json;
}

Result<decode::GenerateRequest> SamplingOptions::to_request() const {
  LOCKSTEP_TRY(const io::Json json, to_json());
  return decode::parse_request(json);
}

Error about_flag(Error error) {
  if (error.where.empty()) return error;
  for (char& c : error.where) {
    if (c == '_') c = '-';
  }
  error.where = "--" + error.where;
  return error;
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
