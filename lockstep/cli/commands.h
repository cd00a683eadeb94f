// SPDX-License-Identifier: Apache-2.0
// The commands of the program, one maker each.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/cli/command.h"

namespace lockstep::cli {

std::unique_ptr<Command> make_generate_command();
std::unique_ptr<Command> make_batch_command();
std::unique_ptr<Command> make_chat_command();
std::unique_ptr<Command> make_tokens_command();
std::unique_ptr<Command> make_score_command();
std::unique_ptr<Command> make_inspect_command();
std::unique_ptr<Command> make_parity_command();
std::unique_ptr<Command> make_completion_command();

// One of each, in the order of --help.
std::vector<std::unique_ptr<Command>> make_all_commands();

}  // namespace lockstep::cli
