// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/decode/generate.h"

namespace lockstep::cli {

// Two or three lines for people: tokens and speeds, then acceptance per depth.
std::string statistics_text(const decode::GenerateResult& result);

}  // namespace lockstep::cli
