// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cli/line_editor.h"

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <filesystem>
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "lockstep/base/limits.h"

namespace lockstep::cli {
namespace {

constexpr int kHistoryLines = 1000;

char* prompt(EditLine*) {
  static char text[] = "> ";  // tidy: allow globals because libedit wants a char*
  return text;
}

void drain(int fd) {
  char bytes[64];
  while (read(fd, bytes, sizeof bytes) > 0) {
  }
}

// One character from stdin for libedit: 1, 0 at the end, or -1 with errno EINTR for an interrupt. A
// read that a signal should break would miss one that comes a moment before it.
int next_character(EditLine* editor, wchar_t* out) {
  int* interrupt_fd = nullptr;
  el_get(editor, EL_CLIENTDATA, &interrupt_fd);
  std::mbstate_t state{};
  for (;;) {
    pollfd wait[] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                     {.fd = *interrupt_fd, .events = POLLIN, .revents = 0}};
    if (poll(wait, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    if (wait[1].revents != 0) {
      drain(*interrupt_fd);
      errno = EINTR;
      return -1;
    }
    char byte = 0;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return static_cast<int>(got);
    const std::size_t used = std::mbrtowc(out, &byte, 1, &state);
    if (used == static_cast<std::size_t>(-2)) continue;  // the character goes on
    if (used != static_cast<std::size_t>(-1)) return 1;
    state = {};  // not UTF-8: left out
  }
}

// libedit takes the encoding of the locale; without one it would drop everything but ASCII.
void choose_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineEditor::Impl {
  EditLine* editor = nullptr;  // null: plain lines
  History* history = nullptr;
  std::string history_path;
  int interrupt_fd = -1;

  LineEditor::Event read_plain(std::string& line) const;
  LineEditor::Event read_edited(std::string& line) const;
};

LineEditor::LineEditor(bool interactive, const std::string& history_path, int interrupt_fd)
    : impl_(std::make_unique<Impl>()) {
  if (!interactive) return;
  choose_utf8();
  impl_->editor = el_init("lockstep", stdin, stdout, stderr);
  if (impl_->editor == nullptr) return;
  impl_->history_path = history_path;
  impl_->interrupt_fd = interrupt_fd;
  el_set(impl_->editor, EL_CLIENTDATA, &impl_->interrupt_fd);
  el_set(impl_->editor, EL_GETCFN, next_character);
  el_set(impl_->editor, EL_PROMPT, prompt);
  el_set(impl_->editor, EL_EDITOR, "emacs");
  impl_->history = history_init();
  if (impl_->history != nullptr) {
    HistEvent event;
    history(impl_->history, &event, H_SETSIZE, kHistoryLines);
    history(impl_->history, &event, H_SETUNIQUE, 1);
    el_set(impl_->editor, EL_HIST, history, impl_->history);
    if (!history_path.empty()) history(impl_->history, &event, H_LOAD, history_path.c_str());
  }
  el_source(impl_->editor, nullptr);  // ~/.editrc
}

LineEditor::~LineEditor() {
  if (impl_->history != nullptr) {
    if (!impl_->history_path.empty()) {
      // What was typed is nobody else's business.
      const mode_t mask = umask(0077);
      HistEvent event;
      history(impl_->history, &event, H_SAVE, impl_->history_path.c_str());
      umask(mask);
    }
    history_end(impl_->history);
  }
  if (impl_->editor != nullptr) el_end(impl_->editor);
}

LineEditor::Event LineEditor::Impl::read_plain(std::string& line) const {
  line.clear();
  int c = std::getc(stdin);
  if (c == EOF) {
    const bool interrupted = std::ferror(stdin) != 0 && errno == EINTR;
    std::clearerr(stdin);
    return interrupted ? Event::kInterrupted : Event::kEnd;
  }
  for (; c != EOF && c != '\n'; c = std::getc(stdin)) {
    if (line.size() < limits::kPromptBytesMax) line.push_back(static_cast<char>(c));
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return Event::kLine;
}

LineEditor::Event LineEditor::Impl::read_edited(std::string& line) const {
  int count = 0;
  errno = 0;
  drain(interrupt_fd);              // what came before the prompt is over
  el_set(editor, EL_PREP_TERM, 1);  // before the prompt shows, so that no key comes too early
  const char* text = el_gets(editor, &count);
  if (text == nullptr || count <= 0) {
    const bool interrupted = count < 0 && errno == EINTR;
    std::fputs("\n", stdout);
    if (interrupted) el_reset(editor);
    return interrupted ? Event::kInterrupted : Event::kEnd;
  }
  line.assign(text, static_cast<std::size_t>(count));
  if (history != nullptr && line.find_first_not_of(" \t\n") != std::string::npos) {
    HistEvent event;
    ::history(history, &event, H_ENTER, text);
  }
  if (!line.empty() && line.back() == '\n') line.pop_back();
  return Event::kLine;
}

LineEditor::Event LineEditor::read(std::string& line) {
  return impl_->editor != nullptr ? impl_->read_edited(line) : impl_->read_plain(line);
}

std::string default_history_path() {
  namespace fs = std::filesystem;
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  fs::path folder;
  if (state != nullptr && state[0] == '/') {  // a relative one is to be ignored
    folder = state;
  } else if (home != nullptr && home[0] == '/') {
    folder = fs::path(home) / ".local/state";
  } else {
    return {};
  }
  folder /= "lockstep";
  std::error_code error;
  fs::create_directories(folder, error);
  return error ? std::string() : (folder / "history").string();
}

}  // namespace lockstep::cli
