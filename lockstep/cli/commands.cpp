// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cli/commands.h"

namespace lockstep::cli {

std::vector<std::unique_ptr<Command>> make_all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(make_generate_command());
  commands.push_back(make_batch_command());
  commands.push_back(make_chat_command());
  commands.push_back(make_tokens_command());
  commands.push_back(make_score_command());
  commands.push_back(make_inspect_command());
  commands.push_back(make_parity_command());
  commands.push_back(make_completion_command());
  return commands;
}

}  // namespace lockstep::cli
