// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cli/command.h"
#include "lockstep/cli/commands.h"

int main(int argc, char** argv) {
  using namespace lockstep::cli;
  ignore_broken_pipes();
  Console console;
  return dispatch(make_all_commands(), argc, argv, LOCKSTEP_VERSION, console);
}
