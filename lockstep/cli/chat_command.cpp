// SPDX-License-Identifier: Apache-2.0
// A conversation in a terminal, or line by line through pipes.
#include <string>
#include <utility>

#include "lockstep/cli/chat_session.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/line_editor.h"
#include "lockstep/cli/model_options.h"

namespace lockstep::cli {
namespace {

class ChatCommand : public Command {
 public:
  std::string name() const override { return "chat"; }
  std::string summary() const override { return "Talk with the model"; }

  void declare(Arguments& arguments) override {
    model_.declare(arguments);
    model_.declare_drafter(arguments);
    arguments.text("--system", &system_, "System message");
    arguments.path("--tools", &tools_file_, "JSON file with an array of tools");
    sampling_.declare(arguments);
  }

  Status check() const override {
    LOCKSTEP_TRY_STATUS(model_.check());
    auto request = sampling_.to_request();
    if (!request.ok()) return about_flag(request.error());
    request->prompt = "";
    if (auto status = decode::validate(*request); !status.ok()) return about_flag(status.error());
    return {};
  }

  int run(Console& console) override {
    install_interrupt_handler();
    auto runtime = model_.open(console);
    if (!runtime.ok()) return console.fail(runtime.error());
    if (!(*runtime)->chat_template().ok()) return console.fail((*runtime)->chat_template().error());
    auto settings = sampling_.to_json();
    if (!settings.ok()) return console.fail(settings.error());
    ChatSession session(console, **runtime, std::move(*settings));
    session.set_system(system_);
    if (!tools_file_.empty()) {
      if (auto status = session.load_tools(tools_file_); !status.ok()) {
        return console.fail(status.error());
      }
    }
    const bool interactive = console.in_is_terminal() && console.out_is_terminal();
    if (interactive) console.note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D ends.");
    return talk(console, session, interactive);
  }

 private:
  // An error of one line is reported and the session goes on; a script sees it in the exit code.
  static int talk(Console& console, ChatSession& session, bool interactive) {
    LineEditor editor(interactive, interactive ? default_history_path() : std::string(),
                      interrupt_descriptor());
    std::string line;
    int exit_code = kExitOk;
    while (!session.finished() && console.out_works()) {
      const LineEditor::Event event = editor.read(line);
      if (event == LineEditor::Event::kEnd) break;
      // A signal that came while the line was read is no wish to stop its answer.
      if (interactive && !termination_flag().raised()) interrupt_flag().clear();
      if (event == LineEditor::Event::kLine && !termination_flag().raised()) {
        if (const Status status = session.take(line); !status.ok()) {
          console.fail(status.error());
          if (!interactive) exit_code = kExitFailure;
        }
      } else if (!interactive) {
        return kExitFailure;
      }
      if (termination_flag().raised()) return kExitFailure;
      if (!interactive && interrupt_flag().raised()) return kExitFailure;
      interrupt_flag().clear();
    }
    return exit_code;
  }

  ModelOptions model_;
  SamplingOptions sampling_;
  std::string system_, tools_file_;
};

}  // namespace

std::unique_ptr<Command> make_chat_command() {
  return std::make_unique<ChatCommand>();
}

}  // namespace lockstep::cli
