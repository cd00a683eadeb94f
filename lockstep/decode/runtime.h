// SPDX-License-Identifier: Apache-2.0
// An opened model: artifact, weights on a back end, tokenizer, template and defaults. The start of
// the public API:
//
//   auto runtime = decode::Runtime::open({.model_dir = "models/demo"});
//   auto answer = decode::generate(**runtime, {.prompt = "Hello"});
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/model/model.h"
#include "lockstep/ops/make_backend.h"
#include "lockstep/spec/artifact.h"
#include "lockstep/spec/generation_config.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::decode {

struct RuntimeOptions {
  std::string model_dir;
  std::string drafter_dir;  // standalone MTP drafter; empty: the artifact's own head
  ops::BackendOptions backend;
};

class Runtime {
 public:
  static Result<std::unique_ptr<Runtime>> open(const RuntimeOptions& options);

  const spec::Artifact& artifact() const { return artifact_; }
  ops::Backend& backend() const { return *backend_; }
  model::Model& model() const { return *model_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  // The error says why there is none (an artifact for raw prompts only).
  const Result<text::ChatTemplate>& chat_template() const { return *template_; }
  const spec::GenerationConfig& defaults() const { return defaults_; }
  // End-of-turn ids: the union of generation_config, config and the tokenizer's <|im_end|> (1.4).
  const std::vector<std::int32_t>& stop_ids() const { return stop_ids_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  double load_s() const { return load_s_; }

 private:
  explicit Runtime(spec::Artifact artifact) : artifact_(std::move(artifact)) {}
  Status load_text();
  void collect_stop_ids();

  spec::Artifact artifact_;
  std::unique_ptr<ops::Backend> backend_;
  std::unique_ptr<model::Model> model_;
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<Result<text::ChatTemplate>> template_;
  spec::GenerationConfig defaults_;
  std::vector<std::int32_t> stop_ids_;
  std::vector<std::string> warnings_;
  double load_s_ = 0;
};

}  // namespace lockstep::decode
