// SPDX-License-Identifier: Apache-2.0
// The commands of the program, one maker each.
#pragma once

#include <memory>

#include "lockstep/cli/command.h"

namespace lockstep::cli {

std::unique_ptr<Command> make_generate_command();
std::unique_ptr<Command> make_batch_command();

}  // namespace lockstep::cli
