// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <vector>

#include "lockstep/cli/command.h"
#include "lockstep/cli/commands.h"

int main(int argc, char** argv) {
  using namespace lockstep::cli;
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(make_generate_command());
  commands.push_back(make_batch_command());
  Console console;
  return dispatch(commands, argc, argv, LOCKSTEP_VERSION, console);
}
