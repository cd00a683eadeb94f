// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/generation_config.h"

#include <cmath>
#include <limits>

#include "lockstep/base/limits.h"
#include "lockstep/io/json.h"
#include "lockstep/spec/json_fields.h"

namespace lockstep::spec {
namespace {

struct Bounds {
  double low = 0;
  double high = 0;
};

Result<std::optional<double>> bounded(const JsonFields& fields, const char* key, Bounds bounds) {
  LOCKSTEP_TRY(const auto value, fields.number(key));
  // The comparison also refuses NaN.
  if (value && !(*value >= bounds.low && *value <= bounds.high)) {
    return fields.error(ErrorCode::kLimit, key,
                        "is " + io::Json(*value).dump() + ", expected " +
                            io::Json(bounds.low).dump() + " to " + io::Json(bounds.high).dump());
  }
  return value;
}

}  // namespace

Result<GenerationConfig> parse_generation_config(std::string_view text, const std::string& label) {
  LOCKSTEP_TRY(const io::Json json, io::parse_json(text, label));
  if (!json.is_object()) {
    return Error{ErrorCode::kFormat, std::string("is ") + json.kind_name() + ", expected an object",
                 label};
  }
  const JsonFields fields(json, label);
  GenerationConfig config;
  LOCKSTEP_TRY(config.do_sample, fields.boolean("do_sample"));
  LOCKSTEP_TRY(config.temperature, bounded(fields, "temperature", {.low = 0, .high = 100}));
  LOCKSTEP_TRY(config.top_k, fields.integer("top_k", {.low = 0, .high = limits::kVocabMax}));
  LOCKSTEP_TRY(config.top_p, bounded(fields, "top_p", {.low = 0, .high = 1}));
  LOCKSTEP_TRY(config.min_p, bounded(fields, "min_p", {.low = 0, .high = 1}));
  LOCKSTEP_TRY(config.repetition_penalty,
               bounded(fields, "repetition_penalty", {.low = 0.01, .high = 100}));
  LOCKSTEP_TRY(config.presence_penalty,
               bounded(fields, "presence_penalty", {.low = -100, .high = 100}));
  LOCKSTEP_TRY(config.eos_ids, fields.ids("eos_token_id"));
  return config;
}

Result<GenerationConfig> load_generation_config(const std::string& path) {
  const auto text = io::read_file(path, limits::kJsonFileBytesMax);
  if (!text.ok()) {
    if (text.error().code == ErrorCode::kNotFound) return GenerationConfig{};
    return text.error();
  }
  return parse_generation_config(*text, path);
}

}  // namespace lockstep::spec
