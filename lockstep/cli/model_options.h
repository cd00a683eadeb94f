// SPDX-License-Identifier: Apache-2.0
// Flags that several commands share: which model on which back end, and how to sample.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/arguments.h"
#include "lockstep/cli/command.h"
#include "lockstep/decode/generate.h"
#include "lockstep/decode/runtime.h"

namespace lockstep::cli {

struct ModelOptions {
  std::string model_dir;
  std::string drafter_dir;
  std::string backend = "cpu";
  std::string precision = "f32";
  std::string isa;
  std::int64_t threads = 0;

  void declare(Arguments& arguments);
  void declare_drafter(Arguments& arguments);  // for commands that speculate
  Status check() const;
  decode::RuntimeOptions runtime_options() const;
  // Opens the model; its warnings go to stderr.
  Result<std::unique_ptr<decode::Runtime>> open(Console& console) const;
};

struct SamplingOptions {
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<std::int64_t> top_k;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> logit_bias;  // "ID:VALUE"
  std::optional<std::int64_t> tokens_max;
  std::vector<std::string> stops;
  bool ignore_eos = false;
  std::string draft_depth = "auto";
  std::string thinking;
  bool preserve_thinking = false;

  void declare(Arguments& arguments);
  // What was given, by the names of decode::parse_request.
  Result<io::Json> to_json() const;
  Result<decode::GenerateRequest> to_request() const;
};

// An error about a JSON field, as one about the flag of that name.
Error about_flag(Error error);

// A messages file: an OpenAI-style array, or an object with `messages` and perhaps `tools`.
Status load_messages(const std::string& path, decode::GenerateRequest& request);
Status load_tools(const std::string& path, decode::GenerateRequest& request);

}  // namespace lockstep::cli
