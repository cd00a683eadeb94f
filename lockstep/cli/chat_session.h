// SPDX-License-Identifier: Apache-2.0
// One conversation: its messages, its settings, and the '/' commands that change them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/result.h"
#include "lockstep/cli/command.h"
#include "lockstep/decode/generate.h"
#include "lockstep/decode/runtime.h"
#include "lockstep/io/json.h"

namespace lockstep::cli {

class ChatSession {
 public:
  // `settings`: fields of a request by their JSON names, without any prompt.
  ChatSession(Console& console, const decode::Runtime& runtime, io::Json settings);

  void set_system(std::string text) { system_ = std::move(text); }
  Status load_tools(const std::string& path);

  // One line of the user: a message, or a '/' command. An error leaves the session as it was.
  Status take(const std::string& line);
  bool finished() const { return finished_; }

 private:
  struct Slash;
  static const std::vector<Slash>& slash_commands();

  Status run_slash(const std::string& line);
  Status ask(const char* role, std::string content);
  io::Json messages_with_system() const;
  Status set_field(const std::string& name, io::Json value);

  Status help(const std::string& rest);
  Status reset(const std::string& rest);
  Status system(const std::string& rest);
  Status set(const std::string& rest);
  Status stats(const std::string& rest);
  Status tools(const std::string& rest);
  Status result(const std::string& rest);
  Status thinking(const std::string& rest);
  Status depth(const std::string& rest);
  Status save(const std::string& rest);
  Status quit(const std::string& rest);

  Console& console_;
  const decode::Runtime& runtime_;
  decode::Engine engine_;
  io::Json settings_;
  std::string system_;
  io::Json tools_;
  io::Json messages_ = io::Json::array();
  std::optional<decode::GenerateResult> last_;
  bool finished_ = false;
};

}  // namespace lockstep::cli
