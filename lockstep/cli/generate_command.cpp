// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>

#include "lockstep/base/limits.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/model_options.h"
#include "lockstep/cli/statistics.h"

namespace lockstep::cli {
namespace {

class GenerateCommand : public Command {
 public:
  std::string name() const override { return "generate"; }
  std::string summary() const override { return "Answer one prompt"; }

  void declare(Arguments& arguments) override {
    model_.declare(arguments);
    arguments.text("--prompt", &prompt_, "The user's message, or with --raw the text to continue");
    arguments.path("--messages", &messages_file_, "JSON file with a conversation");
    arguments.text("--prompt-ids", &prompt_ids_, "Token ids to continue: \"1,2,3\"");
    arguments.text("--system", &system_, "System message in front of --prompt");
    arguments.path("--tools", &tools_file_, "JSON file with an array of tools");
    arguments.flag("--raw", &raw_, "No chat template");
    sampling_.declare(arguments);
    arguments.integer("--logprobs", &logprobs_,
                      "Report log-probabilities with N alternatives per token (with --json)");
    arguments.flag("--stats", &stats_, "Print speed and speculation figures on stderr");
    arguments.flag("--json", &json_, "Print one JSON object instead of the text");
  }

  int run(Console& console) override {
    console.set_json(json_);
    install_interrupt_handler();
    auto request = make_request(console);
    if (!request.ok()) return console.fail(request.error());
    auto runtime = model_.open(console);
    if (!runtime.ok()) return console.fail(runtime.error());
    auto engine = decode::Engine((*runtime)->model(), (*runtime)->tokenizer().size(),
                                 {.sequences_max = 1});
    const auto show = [&](const text::AnswerStream::Delta& delta) {
      if (json_) return;
      if (console.err_is_terminal() && !delta.reasoning.empty()) show_reasoning(delta.reasoning);
      if (!delta.content.empty()) console.out(delta.content);
    };
    auto result = decode::generate(**runtime, engine, *request, show, &interrupt_flag());
    if (!result.ok()) return console.fail(result.error());
    finish(console, **runtime, *request, *result);
    return result->outcome.reason == decode::FinishReason::kCancelled ? kExitFailure : kExitOk;
  }

 private:
  Result<decode::GenerateRequest> make_request(Console& console) const {
    decode::GenerateRequest request;
    LOCKSTEP_TRY_STATUS(sampling_.apply(request));
    request.raw = raw_;
    request.system = system_;
    request.prompt = prompt_;
    if (!messages_file_.empty()) LOCKSTEP_TRY_STATUS(load_messages(messages_file_, request));
    if (prompt_ids_) {
      LOCKSTEP_TRY(request.prompt_ids, decode::parse_ids(*prompt_ids_));
    }
    if (!tools_file_.empty()) LOCKSTEP_TRY_STATUS(load_tools(tools_file_, request));
    if (logprobs_) {
      if (*logprobs_ < 0 || *logprobs_ > limits::kLogprobsMax) {
        return Error{ErrorCode::kInvalidArgument,
                     "is " + std::to_string(*logprobs_) + "; give 0 to " +
                         std::to_string(limits::kLogprobsMax),
                     "--logprobs"};
      }
      request.logprobs = static_cast<int>(*logprobs_);
    }
    const bool given = prompt_ || prompt_ids_ || !messages_file_.empty();
    if (!given) {
      if (console.in_is_terminal()) {
        return Error{ErrorCode::kInvalidArgument,
                     "no prompt; give --prompt, --messages, --prompt-ids, or text on standard input",
                     ""};
      }
      LOCKSTEP_TRY(request.prompt, console.read_input(limits::kPromptBytesMax));
    }
    return request;
  }

  static void show_reasoning(const std::string& text) {
    std::fprintf(stderr, "\x1b[2m%s\x1b[0m", text.c_str());
  }

  void finish(Console& console, const decode::Runtime& runtime,
              const decode::GenerateRequest& request, const decode::GenerateResult& result) const {
    if (json_) {
      console.out_json(to_json(runtime, request, result));
    } else {
      for (const text::ToolCall& call : result.answer.tool_calls) {
        io::Json json = io::Json::object();
        json.set("name", call.name);
        json.set("arguments", call.arguments);
        console.out_json(json, -1);
      }
      const std::string& text = result.answer.text;
      if (!text.empty() && text.back() != '\n') console.out("\n");
    }
    if (stats_) console.note(statistics_text(result));
  }

  ModelOptions model_;
  SamplingOptions sampling_;
  std::optional<std::string> prompt_, prompt_ids_;
  std::string messages_file_, system_, tools_file_;
  std::optional<std::int64_t> logprobs_;
  bool raw_ = false, stats_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_generate_command() { return std::make_unique<GenerateCommand>(); }

}  // namespace lockstep::cli
