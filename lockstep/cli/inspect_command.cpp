// SPDX-License-Identifier: Apache-2.0
// What a model folder is. Opens and checks the files, loads no weights.
#include <optional>
#include <string>
#include <utility>

#include "lockstep/cli/command.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/inspect_report.h"
#include "lockstep/spec/artifact.h"
#include "lockstep/spec/inventory.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::cli {
namespace {

io::Json tokenizer_facts(const text::Tokenizer& tokenizer) {
  io::Json added = io::Json::array();
  for (const text::AddedToken& token : tokenizer.added_tokens()) {
    io::Json json = io::Json::object();
    json.set("id", token.id);
    json.set("content", token.content);
    json.set("special", token.special);
    added.push_back(std::move(json));
  }
  io::Json json = io::Json::object();
  json.set("size", tokenizer.size());
  json.set("added", added.size());
  json.set("added_tokens", std::move(added));
  return json;
}

// Whether an answer starts inside <think>, or null where the template fails.
io::Json opens_reasoning(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer,
                         std::optional<bool> thinking) {
  io::Json message = io::Json::object();
  message.set("role", "user");
  message.set("content", "Hello");
  io::Json messages = io::Json::array();
  messages.push_back(std::move(message));
  text::ChatOptions options;
  options.enable_thinking = thinking;
  const auto chat = chat_template.render(tokenizer, messages, nullptr, options);
  return chat.ok() ? io::Json(chat->opens_reasoning) : io::Json();
}

io::Json template_facts(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer) {
  const std::string& source = chat_template.source();
  const auto mentions = [&](const char* name) { return source.find(name) != std::string::npos; };
  io::Json json = io::Json::object();
  json.set("file", chat_template.label());
  json.set("bytes", source.size());
  json.set("tools", mentions("tools"));
  json.set("enable_thinking", mentions("enable_thinking"));
  json.set("preserve_thinking", mentions("preserve_thinking"));
  json.set("thinks_by_default", opens_reasoning(chat_template, tokenizer, std::nullopt));
  json.set("thinks_when_on", opens_reasoning(chat_template, tokenizer, true));
  json.set("thinks_when_off", opens_reasoning(chat_template, tokenizer, false));
  return json;
}

class InspectCommand : public Command {
 public:
  std::string name() const override { return "inspect"; }
  std::string summary() const override { return "Show what a model folder is"; }

  void declare(Arguments& arguments) override {
    arguments.positional_path("DIR", &model_dir_, "Folder of the model");
    arguments.path("--drafter", &drafter_dir_, "Folder of a standalone MTP drafter");
    arguments.flag("--tensors", &tensors_, "List every tensor");
    arguments.flag("--json", &json_, "Print one JSON object");
  }

  int run(Console& console) override {
    const auto artifact = spec::Artifact::open(model_dir_, {.drafter_dir = drafter_dir_});
    if (!artifact.ok()) return console.fail(artifact.error());
    io::Json facts = spec::inspect_artifact(*artifact);
    add_text_facts(facts);
    io::Json tensors;
    if (tensors_) tensors = spec::list_tensors(*artifact);
    if (json_) {
      if (tensors_) facts.set("tensors", std::move(tensors));
      console.out_json(facts);
    } else {
      console.out(model_dir_ + "\n\n" + inspect_report(facts, tensors));
    }
    return kExitOk;
  }

 private:
  // An artifact whose text files are damaged or missing is still shown, with a warning.
  void add_text_facts(io::Json& facts) const {
    io::Json warnings = *facts.find("warnings");
    facts.set("tokenizer", nullptr);
    facts.set("template", nullptr);
    const auto tokenizer = text::Tokenizer::open(model_dir_);
    const auto chat_template = text::ChatTemplate::open(model_dir_);
    if (tokenizer.ok()) {
      facts.set("tokenizer", tokenizer_facts(*tokenizer));
    } else {
      warnings.push_back(tokenizer.error().to_string());
    }
    if (!chat_template.ok()) {
      warnings.push_back(chat_template.error().to_string());
    } else if (tokenizer.ok()) {
      facts.set("template", template_facts(*chat_template, *tokenizer));
    }
    facts.set("warnings", std::move(warnings));
  }

  std::string model_dir_, drafter_dir_;
  bool tensors_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_inspect_command() {
  return std::make_unique<InspectCommand>();
}

}  // namespace lockstep::cli
