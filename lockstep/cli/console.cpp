// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "lockstep/base/hex.h"
#include "lockstep/cli/command.h"

namespace lockstep::cli {
namespace {

// Names out of damaged files and templates end up in messages: control characters are spelled out,
// so that they can neither hide the rest of a line nor steer a terminal.
std::string visible(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) {
      out += "\\x" + hex(std::string_view(&c, 1));
    } else {
      out += c;
    }
  }
  return out;
}

// A pipe from the signal handler; both ends never block.
struct WakePipe {
  WakePipe() {
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) ends[0] = ends[1] = -1;
  }
  int ends[2];
};

WakePipe& wake_pipe() {
  static WakePipe pipe;
  return pipe;
}

void on_interrupt(int signal) {
  const int saved_errno = errno;
  [[maybe_unused]] const auto written = write(wake_pipe().ends[1], "", 1);  // a full pipe is enough
  errno = saved_errno;
  if (signal == SIGTERM) termination_flag().raise();
  if (interrupt_flag().raised()) _exit(130);
  interrupt_flag().raise();
}

}  // namespace

StopFlag& interrupt_flag() {
  static StopFlag flag;
  return flag;
}

StopFlag& termination_flag() {
  static StopFlag flag;
  return flag;
}

int interrupt_descriptor() {
  return wake_pipe().ends[0];
}

void install_interrupt_handler() {
  wake_pipe();  // made here, not in the handler
  interrupt_flag();
  termination_flag();
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void ignore_broken_pipes() {
  std::signal(SIGPIPE, SIG_IGN);
}

io::Json error_json(const Error& error) {
  io::Json json = io::Json::object();
  json.set("code", error_code_name(error.code));
  json.set("message", error.message);
  json.set("where", error.where);
  return json;
}

void Console::out(std::string_view text) {
  if (out_errno_ != 0) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return;
  }
  out_errno_ = errno == 0 ? EIO : errno;
  interrupt_flag().raise();
}

void Console::out_json(const io::Json& value, int indent) {
  out(value.dump(indent) + "\n");
}

void Console::note(std::string_view text) {
  end_progress();
  const std::string line = visible(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

int Console::fail(const Error& error) {
  report(error);
  return kExitFailure;
}

int Console::usage_error(const Error& error) {
  report(error);
  note("See 'lockstep --help', or 'lockstep COMMAND --help'.");
  return kExitUsage;
}

int Console::finish(int exit_code) {
  if (out_errno_ == 0) return exit_code;
  note(std::string("error: standard output: can't be written: ") + std::strerror(out_errno_));
  return kExitFailure;
}

void Console::report(const Error& error) {
  note("error: " + error.to_string());
  if (json_) {
    io::Json json = io::Json::object();
    json.set("error", error_json(error));
    out_json(json);
  }
}

void Console::reasoning(std::string_view text) {
  if (text.empty() || !err_is_terminal()) return;
  std::fprintf(stderr, "\x1b[2m%.*s\x1b[0m", static_cast<int>(text.size()), text.data());
}

void Console::progress(std::string_view text) {
  if (!err_is_terminal()) return;
  std::fprintf(stderr, "\r\x1b[K%.*s", static_cast<int>(text.size()), text.data());
  std::fflush(stderr);
  progress_shown_ = true;
}

void Console::end_progress() {
  if (!progress_shown_) return;
  std::fputs("\r\x1b[K", stderr);
  progress_shown_ = false;
}

bool Console::out_is_terminal() const {
  return isatty(STDOUT_FILENO) == 1;
}
bool Console::err_is_terminal() const {
  return isatty(STDERR_FILENO) == 1;
}
bool Console::in_is_terminal() const {
  return isatty(STDIN_FILENO) == 1;
}

Result<std::string> Console::read_input(std::size_t bytes_max) {
  std::string text;
  char buffer[65536];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, stdin)) {
    if (text.size() + got > bytes_max) {
      return Error{ErrorCode::kLimit,
                   "is longer than the limit of " + std::to_string(bytes_max) + " bytes",
                   "standard input"};
    }
    text.append(buffer, got);
  }
  if (std::ferror(stdin)) {
    return Error{ErrorCode::kIo, std::string("can't be read: ") + std::strerror(errno),
                 "standard input"};
  }
  return text;
}

}  // namespace lockstep::cli
