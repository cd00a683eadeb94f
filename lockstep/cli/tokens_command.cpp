// SPDX-License-Identifier: Apache-2.0
// What a prompt is made of: the text after the template, and its tokens. Loads no weights.
#include <cstdint>
#include <iomanip>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/hex.h"
#include "lockstep/base/limits.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/model_options.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/text/utf8.h"

namespace lockstep::cli {
namespace {

struct Tokens {
  std::string text;
  std::vector<std::int32_t> ids;
};

// For a table: control characters and bytes that are no UTF-8 by themselves as escapes.
std::string visible(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const text::Utf8Unit unit = text::read_utf8(bytes);
    const std::string_view piece = bytes.substr(0, unit.size);
    const bool control = piece[0] >= 0 && (piece[0] < 0x20 || piece[0] == 0x7f);
    if (piece[0] == '\n') {
      out += "\\n";
    } else if (unit.kind != text::Utf8Unit::Kind::kCharacter || control) {
      for (const char c : piece)
        out += "\\x" + hex(std::string_view(&c, 1));
    } else {
      out += piece;
    }
    bytes.remove_prefix(unit.size);
  }
  return out;
}

io::Json to_json(const text::Tokenizer& tokenizer, const Tokens& tokens) {
  io::Json ids = io::Json::array();
  io::Json list = io::Json::array();
  for (const std::int32_t id : tokens.ids) {
    io::Json token = decode::token_json(tokenizer, id);
    token.set("special", tokenizer.is_special(id));
    list.push_back(std::move(token));
    ids.push_back(id);
  }
  io::Json json = io::Json::object();
  json.set("text", tokens.text);
  json.set("ids", std::move(ids));
  json.set("count", tokens.ids.size());
  json.set("tokens", std::move(list));
  return json;
}

std::string to_table(const text::Tokenizer& tokenizer, const Tokens& tokens) {
  std::ostringstream out;
  out << tokens.text;
  if (!tokens.text.empty() && tokens.text.back() != '\n') out << '\n';
  out << '\n' << tokens.ids.size() << " tokens\n";
  if (!tokens.ids.empty()) out << "index      id  text\n";
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    const std::int32_t id = tokens.ids[i];
    out << std::setw(5) << i << std::setw(8) << id << "  '" << visible(tokenizer.token_bytes(id))
        << (tokenizer.is_special(id) ? "'  special\n" : "'\n");
  }
  return out.str();
}

class TokensCommand : public Command {
 public:
  std::string name() const override { return "tokens"; }
  std::string summary() const override { return "Show the text and the tokens of a prompt"; }

  void declare(Arguments& arguments) override {
    arguments.path("--model", &model_dir_, "Folder of the model; only its text files are read");
    arguments.text("--prompt", &prompt_, "The user's message, or with --raw the text itself");
    arguments.path("--messages", &messages_file_, "JSON file with a conversation");
    arguments.text("--decode", &decode_, "Token ids to turn into text: \"1,2,3\"");
    arguments.text("--system", &system_, "System message in front of --prompt");
    arguments.path("--tools", &tools_file_, "JSON file with an array of tools");
    arguments.flag("--raw", &raw_, "No chat template");
    arguments.choice("--thinking", &thinking_, {"on", "off"},
                     "Ask for reasoning or not (default: as the template does)");
    arguments.flag("--preserve-thinking", &preserve_thinking_, "Keep reasoning of earlier turns");
    arguments.flag("--json", &json_, "Print one JSON object");
  }

  Status check() const override {
    const auto wrong = [](const char* message, const char* where) {
      return Error{ErrorCode::kInvalidArgument, message, where};
    };
    if (model_dir_.empty()) return wrong("is missing; give the folder of a model", "--model");
    const int forms = (prompt_ ? 1 : 0) + (messages_file_.empty() ? 0 : 1) + (decode_ ? 1 : 0);
    if (forms != 1) return wrong("give one of --prompt, --messages and --decode", "");
    const bool templated = !raw_ && !decode_;
    if (raw_ && !prompt_) return wrong("goes with --prompt only", "--raw");
    if (!system_.empty() && (!prompt_ || raw_)) return wrong("goes with a --prompt", "--system");
    if (!templated && (!tools_file_.empty() || !thinking_.empty() || preserve_thinking_)) {
      return wrong("--tools, --thinking and --preserve-thinking need the chat template", "");
    }
    if (decode_) {
      if (auto ids = decode::parse_ids(*decode_); !ids.ok()) {
        return Error{ids.error().code, ids.error().message, "--decode"};
      }
    }
    return {};
  }

  int run(Console& console) override {
    auto tokenizer = text::Tokenizer::open(model_dir_);
    if (!tokenizer.ok()) return console.fail(tokenizer.error());
    auto tokens = decode_ ? decode_ids(*tokenizer) : encode(*tokenizer);
    if (!tokens.ok()) return console.fail(tokens.error());
    if (json_) {
      console.out_json(to_json(*tokenizer, *tokens));
    } else {
      console.out(to_table(*tokenizer, *tokens));
    }
    return kExitOk;
  }

 private:
  Result<Tokens> decode_ids(const text::Tokenizer& tokenizer) const {
    Tokens tokens;
    LOCKSTEP_TRY(tokens.ids, decode::parse_ids(*decode_));
    for (const std::int32_t id : tokens.ids) {
      if (id < 0 || id >= tokenizer.size()) {
        return Error{ErrorCode::kInvalidArgument,
                     "token id " + std::to_string(id) + " is not in the vocabulary of " +
                         std::to_string(tokenizer.size()) + " tokens",
                     "--decode"};
      }
      tokens.text += tokenizer.token_bytes(id);
    }
    return tokens;
  }

  Result<Tokens> encode(const text::Tokenizer& tokenizer) const {
    Tokens tokens;
    if (prompt_ && prompt_->size() > limits::kPromptBytesMax) {
      return Error{ErrorCode::kLimit,
                   "has more than " + std::to_string(limits::kPromptBytesMax) + " bytes",
                   "--prompt"};
    }
    if (raw_) {
      tokens.text = *prompt_;
      LOCKSTEP_TRY(tokens.ids, tokenizer.encode(*prompt_, text::AddedTokens::kMatch));
      return tokens;
    }
    decode::GenerateRequest request;
    request.prompt = prompt_;
    request.system = system_;
    if (!messages_file_.empty()) LOCKSTEP_TRY_STATUS(load_messages(messages_file_, request));
    if (!tools_file_.empty()) LOCKSTEP_TRY_STATUS(load_tools(tools_file_, request));
    LOCKSTEP_TRY(const auto chat_template, text::ChatTemplate::open(model_dir_));
    text::ChatOptions options;
    if (!thinking_.empty()) options.enable_thinking = thinking_ == "on";
    if (preserve_thinking_) options.preserve_thinking = true;
    LOCKSTEP_TRY(auto chat, chat_template.render(tokenizer, decode::conversation(request),
                                                 request.tools, options));
    return Tokens{.text = std::move(chat.text), .ids = std::move(chat.ids)};
  }

  std::string model_dir_, messages_file_, system_, tools_file_, thinking_;
  std::optional<std::string> prompt_, decode_;
  bool raw_ = false, preserve_thinking_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_tokens_command() {
  return std::make_unique<TokensCommand>();
}

}  // namespace lockstep::cli
