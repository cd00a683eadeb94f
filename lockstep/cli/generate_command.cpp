// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>

#include "lockstep/base/limits.h"
#include "lockstep/cli/answer_display.h"
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
    model_.declare_drafter(arguments);
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

  Status check() const override {
    LOCKSTEP_TRY_STATUS(model_.check());
    auto request = sampling_.to_request();
    if (!request.ok()) return about_flag(request.error());
    if (logprobs_ && !json_) {
      return Error{ErrorCode::kInvalidArgument, "is shown with --json only; add it", "--logprobs"};
    }
    // Files aren't read yet; empty arrays stand for them.
    if (auto status = add_flags(*request); !status.ok()) return about_flag(status.error());
    if (!messages_file_.empty()) request->messages = io::Json::array();
    if (!tools_file_.empty()) request->tools = io::Json::array();
    if (!has_prompt()) request->prompt = "";
    if (auto status = decode::validate(*request); !status.ok()) return about_flag(status.error());
    return {};
  }

  int run(Console& console) override {
    install_interrupt_handler();
    if (!has_prompt() && console.in_is_terminal()) {
      return console.usage_error(
          {ErrorCode::kInvalidArgument,
           "no prompt; give --prompt, --messages, --prompt-ids, or text on standard input", ""});
    }
    auto request = make_request(console);
    if (!request.ok()) return console.fail(request.error());
    auto runtime = model_.open(console);
    if (!runtime.ok()) return console.fail(runtime.error());
    decode::Engine engine((*runtime)->model(), (*runtime)->tokenizer().size(),
                          {.sequences_max = 1});
    AnswerDisplay display(console);
    const auto show = [&](const text::AnswerStream::Delta& delta) {
      if (!json_) display.show(delta);
    };
    auto result = decode::generate(**runtime, engine, *request, show, &interrupt_flag());
    if (!result.ok()) return console.fail(result.error());
    if (json_) {
      console.out_json(to_json(**runtime, *request, *result));
    } else {
      display.finish(result->answer);
      const text::Answer& answer = result->answer;
      if (answer.text.empty() && answer.tool_calls.empty() && !answer.reasoning.empty()) {
        console.note(
            "note: nothing followed the reasoning, which --json shows; allow more tokens, "
            "or turn it off with --thinking off");
      }
    }
    if (stats_) console.note(statistics_text(*result));
    return result->outcome.reason == decode::FinishReason::kCancelled ? kExitFailure : kExitOk;
  }

 private:
  bool has_prompt() const { return prompt_ || prompt_ids_ || !messages_file_.empty(); }

  // What the command line alone says.
  Status add_flags(decode::GenerateRequest& request) const {
    request.raw = raw_;
    request.system = system_;
    request.prompt = prompt_;
    if (prompt_ids_) {
      auto ids = decode::parse_ids(*prompt_ids_);
      if (!ids.ok()) return Error{ids.error().code, ids.error().message, "prompt_ids"};
      request.prompt_ids = std::move(*ids);
    }
    if (logprobs_) {
      // Out of range either way; the number must fit for the message.
      constexpr std::int64_t kMax = limits::kLogprobsMax + 1;
      const bool fits = *logprobs_ >= 0 && *logprobs_ < kMax;
      request.logprobs = static_cast<int>(fits ? *logprobs_ : kMax);
    }
    return {};
  }

  Result<decode::GenerateRequest> make_request(Console& console) const {
    LOCKSTEP_TRY(decode::GenerateRequest request, sampling_.to_request());
    LOCKSTEP_TRY_STATUS(add_flags(request));
    if (!messages_file_.empty()) LOCKSTEP_TRY_STATUS(load_messages(messages_file_, request));
    if (!tools_file_.empty()) LOCKSTEP_TRY_STATUS(load_tools(tools_file_, request));
    if (!has_prompt()) {
      LOCKSTEP_TRY(request.prompt, console.read_input(limits::kPromptBytesMax));
      if (request.prompt->empty()) {
        return Error{ErrorCode::kInvalidArgument, "is empty; there is no prompt", "standard input"};
      }
    }
    return request;
  }

  ModelOptions model_;
  SamplingOptions sampling_;
  std::optional<std::string> prompt_, prompt_ids_;
  std::string messages_file_, system_, tools_file_;
  std::optional<std::int64_t> logprobs_;
  bool raw_ = false, stats_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_generate_command() {
  return std::make_unique<GenerateCommand>();
}

}  // namespace lockstep::cli
