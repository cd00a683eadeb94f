// SPDX-License-Identifier: Apache-2.0
// Lines from a person, through libedit: editing, history and its file. Where standard input or
// output is no terminal, lines are read as they come and nothing is shown.
#pragma once

#include <memory>
#include <string>

namespace lockstep::cli {

class LineEditor {
 public:
  // `history_path` is read now and written at the end; empty: no file. `interactive`: both ends are
  // terminals. `interrupt_fd` becomes readable when the line is to be thrown away.
  LineEditor(bool interactive, const std::string& history_path, int interrupt_fd);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Event { kLine, kInterrupted, kEnd };
  // The next line without its end. kInterrupted: Ctrl-C threw the line away.
  Event read(std::string& line);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// $XDG_STATE_HOME/lockstep/history, or that below ~/.local/state; its folder is made. Empty when
// neither is known or the folder can't be made.
std::string default_history_path();

}  // namespace lockstep::cli
