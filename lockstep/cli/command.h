// SPDX-License-Identifier: Apache-2.0
// What a command is, and the console it talks through. One file per command; to add one, write
// NAME_command.cpp and name its maker in commands.h and main.cpp.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/base/stop_flag.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/io/json.h"

namespace lockstep::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;  // the operation failed, or a check does not hold
inline constexpr int kExitUsage = 2;    // the command line is wrong

// Answers go to stdout, everything else to stderr.
class Console {
 public:
  // Set by a command whose --json flag is given: errors then go to stdout as an object too.
  void set_json(bool json) { json_ = json; }

  void out(std::string_view text);               // as it is, flushed
  void out_json(const io::Json& value, int indent = 2);  // with a newline
  // One line on stderr.
  void note(std::string_view text);
  // "error: where: message" and kExitFailure.
  int fail(const Error& error);
  void usage_error(std::string_view message);
  // Overwrites one line of a terminal; nothing where stderr is no terminal.
  void progress(std::string_view text);
  void end_progress();

  bool out_is_terminal() const;
  bool err_is_terminal() const;
  bool in_is_terminal() const;
  Result<std::string> read_input(std::size_t bytes_max);

 private:
  bool json_ = false;
  bool progress_shown_ = false;
};

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string summary() const = 0;
  virtual void declare(Arguments& arguments) = 0;
  virtual int run(Console& console) = 0;
};

// Parses argv, runs the command it names, and gives the exit code. (arguments.cpp)
int dispatch(const std::vector<std::unique_ptr<Command>>& commands, int argc, char** argv,
             const std::string& version, Console& console);
// Name and arguments of every command, for the completion scripts.
std::vector<std::pair<std::string, std::vector<ArgumentSpec>>> describe(
    const std::vector<std::unique_ptr<Command>>& commands);

// Raised by Ctrl-C once installed; a second Ctrl-C ends the process.
StopFlag& interrupt_flag();
void install_interrupt_handler();

}  // namespace lockstep::cli
