// SPDX-License-Identifier: Apache-2.0
// What is shown with and after an answer.
#pragma once

#include <string>

#include "lockstep/cli/command.h"
#include "lockstep/decode/generate.h"

namespace lockstep::cli {

// Two or three lines for people: tokens and speeds, then acceptance per depth.
std::string statistics_text(const decode::GenerateResult& result);

// After streamed text: its tool calls as JSON, one a line, and a line break if the text has none.
void end_answer(Console& console, const text::Answer& answer);

}  // namespace lockstep::cli
