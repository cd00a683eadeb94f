// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/io/json.h"

namespace lockstep::cli {

// The object of `lockstep inspect --json` for people: aligned sections, one fact a line. `tensors`
// is null or the array of spec::list_tensors.
std::string inspect_report(const io::Json& facts, const io::Json& tensors);

// "41.4 MB": powers of 1000, three digits.
std::string bytes_text(double bytes);

}  // namespace lockstep::cli
