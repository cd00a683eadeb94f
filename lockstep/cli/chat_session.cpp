// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cli/chat_session.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <utility>

#include "lockstep/cli/answer_display.h"
#include "lockstep/cli/model_options.h"
#include "lockstep/cli/statistics.h"

namespace lockstep::cli {
namespace {

Error wrong(std::string message, std::string where) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(where)};
}

io::Json text_message(const char* role, std::string content) {
  io::Json json = io::Json::object();
  json.set("role", role);
  json.set("content", std::move(content));
  return json;
}

// As clients write it; the reasoning is kept for templates that show that of earlier turns.
io::Json assistant_message(const text::Answer& answer) {
  io::Json json = text_message("assistant", answer.text);
  if (!answer.reasoning.empty()) json.set("reasoning_content", answer.reasoning);
  if (answer.tool_calls.empty()) return json;
  io::Json calls = io::Json::array();
  for (const text::ToolCall& call : answer.tool_calls) {
    io::Json function = io::Json::object();
    function.set("name", call.name);
    function.set("arguments", call.arguments);
    io::Json entry = io::Json::object();
    entry.set("type", "function");
    entry.set("function", std::move(function));
    calls.push_back(std::move(entry));
  }
  json.set("tool_calls", std::move(calls));
  return json;
}

}  // namespace

struct ChatSession::Slash {
  const char* name;
  const char* argument;
  const char* help;
  Status (ChatSession::*run)(const std::string& rest);
};

const std::vector<ChatSession::Slash>& ChatSession::slash_commands() {
  using S = ChatSession;
  static const std::vector<Slash> table = {
      {"/help", "", "this list", &S::help},
      {"/reset", "", "forget the conversation; system message and tools stay", &S::reset},
      {"/system", "TEXT", "system message of the conversation; without TEXT none", &S::system},
      {"/set", "NAME VALUE", "a field of a request, such as temperature; without VALUE the default",
       &S::set},
      {"/thinking", "on|off", "ask for reasoning or not", &S::thinking},
      {"/depth", "auto|0..8", "tokens drafted per round; never changes the answer", &S::depth},
      {"/tools", "FILE", "tools from a JSON file; without FILE none", &S::tools},
      {"/result", "TEXT", "what a tool call gave; the model goes on from there", &S::result},
      {"/stats", "", "speed and speculation of the last answer", &S::stats},
      {"/save", "FILE", "the conversation, as 'generate --messages' reads it", &S::save},
      {"/quit", "", "end; so does Ctrl-D", &S::quit},
  };
  return table;
}

ChatSession::ChatSession(Console& console, const decode::Runtime& runtime, io::Json settings)
    : console_(console),
      runtime_(runtime),
      engine_(runtime.model(), runtime.tokenizer().size(), {.sequences_max = 1}),
      settings_(std::move(settings)) {}

Status ChatSession::load_tools(const std::string& path) {
  decode::GenerateRequest request;
  LOCKSTEP_TRY_STATUS(cli::load_tools(path, request));
  tools_ = std::move(request.tools);
  return {};
}

Status ChatSession::take(const std::string& line) {
  if (line.find_first_not_of(" \t") == std::string::npos) return {};
  return line.front() == '/' ? run_slash(line) : ask("user", line);
}

Status ChatSession::run_slash(const std::string& line) {
  const std::size_t space = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, space);
  const std::size_t begin = line.find_first_not_of(' ', space);
  const std::string rest = begin == std::string::npos ? "" : line.substr(begin);
  for (const Slash& slash : slash_commands()) {
    if (name != slash.name) continue;
    if (slash.argument[0] == '\0' && !rest.empty()) return wrong("takes no argument", name);
    return (this->*slash.run)(rest);
  }
  return wrong("is no command; /help lists them", name);
}

io::Json ChatSession::messages_with_system() const {
  io::Json messages = io::Json::array();
  if (!system_.empty()) messages.push_back(text_message("system", system_));
  for (const io::Json& message : messages_.as_array())
    messages.push_back(message);
  return messages;
}

Status ChatSession::ask(const char* role, std::string content) {
  LOCKSTEP_TRY(auto request, decode::parse_request(settings_));
  messages_.push_back(text_message(role, std::move(content)));
  request.messages = messages_with_system();
  request.tools = tools_;
  AnswerDisplay display(console_);
  const auto show = [&](const text::AnswerStream::Delta& delta) { display.show(delta); };
  auto answer = decode::generate(runtime_, engine_, request, show, &interrupt_flag());
  if (!answer.ok()) {
    messages_.as_array().pop_back();
    return answer.error();
  }
  display.finish(answer->answer);
  messages_.push_back(assistant_message(answer->answer));
  last_ = std::move(*answer);
  return {};
}

Status ChatSession::set_field(const std::string& name, io::Json value) {
  constexpr std::array<std::string_view, 7> kOwn = {"prompt", "messages", "prompt_ids", "system",
                                                    "tools",  "raw",      "logprobs"};
  if (std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end()) {
    return wrong("is no setting of a chat", name);
  }
  io::Json changed = io::Json::object();
  for (const auto& [key, old] : settings_.as_object()) {
    if (key != name) changed.set(key, old);
  }
  if (!value.is_null()) changed.set(name, std::move(value));
  LOCKSTEP_TRY(auto request, decode::parse_request(changed));
  request.prompt = "";
  LOCKSTEP_TRY_STATUS(decode::validate(request));
  settings_ = std::move(changed);
  return {};
}

Status ChatSession::help(const std::string&) {
  std::string text;
  for (const Slash& slash : slash_commands()) {
    std::string usage = std::string(slash.name) + " " + slash.argument;
    usage.resize(20, ' ');
    text += usage + slash.help + "\n";
  }
  console_.note(text + "Settings: " + settings_.dump());
  return {};
}

Status ChatSession::reset(const std::string&) {
  messages_ = io::Json::array();
  last_.reset();
  return {};
}

Status ChatSession::system(const std::string& rest) {
  system_ = rest;
  return {};
}

// A value that is no JSON, or not of the right kind, is a text: `/set stop END`.
Status ChatSession::set(const std::string& rest) {
  const std::size_t space = std::min(rest.find(' '), rest.size());
  const std::string name = rest.substr(0, space);
  if (name.empty()) return wrong("needs a name and a value", "/set");
  const std::size_t begin = rest.find_first_not_of(' ', space);
  if (begin == std::string::npos) return set_field(name, nullptr);
  const std::string text = rest.substr(begin);
  auto value = io::parse_json(text, name);
  if (!value.ok()) return set_field(name, text);
  Status status = set_field(name, std::move(*value));
  // `/set stop 1` means the text "1".
  return status.ok() || !set_field(name, text).ok() ? std::move(status) : Status();
}

Status ChatSession::thinking(const std::string& rest) {
  if (rest != "on" && rest != "off") return wrong("is '" + rest + "'; give on or off", "/thinking");
  return set_field("thinking", rest == "on");
}

Status ChatSession::depth(const std::string& rest) {
  return set_field("draft_depth", rest);
}

Status ChatSession::stats(const std::string&) {
  console_.note(last_ ? statistics_text(*last_) : "no answer yet");
  return {};
}

Status ChatSession::tools(const std::string& rest) {
  if (!rest.empty()) return load_tools(rest);
  tools_ = nullptr;
  return {};
}

Status ChatSession::result(const std::string& rest) {
  if (messages_.size() == 0)
    return wrong("follows a tool call, and there is no answer yet", "/result");
  return ask("tool", rest);
}

Status ChatSession::save(const std::string& rest) {
  if (rest.empty()) return wrong("needs a file name", "/save");
  io::Json json = io::Json::object();
  json.set("messages", messages_with_system());
  if (!tools_.is_null()) json.set("tools", tools_);
  std::ofstream out(rest, std::ios::binary);
  out << json.dump(2) << '\n' << std::flush;
  if (!out) return Error{ErrorCode::kIo, "can't be written", rest};
  return {};
}

Status ChatSession::quit(const std::string&) {
  finished_ = true;
  return {};
}

}  // namespace lockstep::cli
