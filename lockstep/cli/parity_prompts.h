// SPDX-License-Identifier: Apache-2.0
// Prompts for `lockstep parity`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/decode/runtime.h"

namespace lockstep::cli {

// A dozen: chat questions through the template (if there is one), texts to continue, and random ids
// of lengths around the chunk grain. A function of `seed`.
Result<std::vector<std::vector<std::int32_t>>> built_in_prompts(const decode::Runtime& runtime,
                                                                std::uint64_t seed);

// A JSON array of texts to continue, arrays of ids and request objects (their prompt only; a
// sampling field is refused), or a text file with one text to continue a line.
Result<std::vector<std::vector<std::int32_t>>> load_prompts(const decode::Runtime& runtime,
                                                            const std::string& path);

}  // namespace lockstep::cli
