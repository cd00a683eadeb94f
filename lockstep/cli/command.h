// SPDX-License-Identifier: Apache-2.0
// What a command is, and the console it talks through. One file per command; to add one, write
// NAME_command.cpp and name its maker in commands.h and commands.cpp.
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
  // Set when --json is given: errors then go to stdout as an object too.
  void set_json(bool json) { json_ = json; }

  // As it is, flushed. When stdout can't be written any more, raises interrupt_flag().
  void out(std::string_view text);
  void out_json(const io::Json& value, int indent = 2);  // with a newline
  // One line on stderr.
  void note(std::string_view text);
  // "error: where: message", and the exit code for it.
  int fail(const Error& error);         // kExitFailure
  int usage_error(const Error& error);  // kExitUsage
  // The exit code of the program: `exit_code`, or kExitFailure if some output was lost.
  int finish(int exit_code);
  // Dim text on stderr, if that is a terminal.
  void reasoning(std::string_view text);
  // Overwrites one line of a terminal; nothing where stderr is no terminal.
  void progress(std::string_view text);
  void end_progress();

  bool out_works() const { return out_errno_ == 0; }
  bool out_is_terminal() const;
  bool err_is_terminal() const;
  bool in_is_terminal() const;
  Result<std::string> read_input(std::size_t bytes_max);

 private:
  void report(const Error& error);

  bool json_ = false;
  bool progress_shown_ = false;
  int out_errno_ = 0;  // of the first write to stdout that failed
};

// {code, message, where}.
io::Json error_json(const Error& error);

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string summary() const = 0;
  virtual void declare(Arguments& arguments) = 0;
  // What parsing alone can't see: flags that are missing, contradict each other or are out of
  // range. An error is wrong usage; run() is then not called.
  virtual Status check() const { return {}; }
  virtual int run(Console& console) = 0;
};

// Parses argv, runs the command it names, and gives the exit code. (arguments.cpp)
int dispatch(const std::vector<std::unique_ptr<Command>>& commands, int argc, char** argv,
             const std::string& version, Console& console);
// Name and arguments of every command, for the completion scripts.
std::vector<std::pair<std::string, std::vector<ArgumentSpec>>> describe(
    const std::vector<std::unique_ptr<Command>>& commands);

// Raised by Ctrl-C and SIGTERM once installed; a second one while it is raised ends the process.
StopFlag& interrupt_flag();
// Raised by SIGTERM only, and never cleared.
StopFlag& termination_flag();
void install_interrupt_handler();
// Becomes readable with every such signal, so that waiting for input and for a signal is one poll.
// Empty it by reading. Only after install_interrupt_handler().
int interrupt_descriptor();
// Writing to a pipe that nobody reads then fails like any other write.
void ignore_broken_pipes();

}  // namespace lockstep::cli
