// SPDX-License-Identifier: Apache-2.0
// generation_config.json: the sampling defaults that an artifact recommends (spec 1.2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"

namespace lockstep::spec {

// Absent keys stay empty.
struct GenerationConfig {
  std::optional<bool> do_sample;  // false: greedy whatever the temperature says
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::vector<std::int64_t> eos_ids;
};

// A missing file gives an empty configuration; a malformed one is an error.
Result<GenerationConfig> load_generation_config(const std::string& path);
Result<GenerationConfig> parse_generation_config(std::string_view json, const std::string& label);

}  // namespace lockstep::spec
