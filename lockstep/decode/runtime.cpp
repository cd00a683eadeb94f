// SPDX-License-Identifier: Apache-2.0
#include "lockstep/decode/runtime.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/spec/weights.h"

namespace lockstep::decode {

Result<std::unique_ptr<Runtime>> Runtime::open(const RuntimeOptions& options) {
  Stopwatch watch;
  LOCKSTEP_TRY(auto backend, ops::make_backend(options.backend));
  LOCKSTEP_TRY(auto artifact,
               spec::Artifact::open(options.model_dir, {.drafter_dir = options.drafter_dir}));
  auto runtime = std::unique_ptr<Runtime>(new Runtime(std::move(artifact)));
  runtime->backend_ = std::move(backend);
  LOCKSTEP_TRY_STATUS(runtime->load_text());
  LOCKSTEP_TRY(auto weights, spec::bind_weights(runtime->artifact_));
  runtime->model_ =
      model::Model::build(runtime->artifact_.config(), std::move(weights), *runtime->backend_);
  runtime->load_s_ = watch.seconds();
  return runtime;
}

Status Runtime::load_text() {
  const std::string& dir = artifact_.dir();
  warnings_ = artifact_.warnings();
  LOCKSTEP_TRY(defaults_, spec::load_generation_config(dir + "/generation_config.json"));
  LOCKSTEP_TRY(auto tokenizer, text::Tokenizer::open(dir));
  const std::int64_t rows = artifact_.config().text.vocab_rows;
  if (tokenizer.size() > rows) {
    return Error{ErrorCode::kInconsistent,
                 "the tokenizer has " + std::to_string(tokenizer.size()) +
                     " tokens and the embedding only " + std::to_string(rows) +
                     " rows; the files belong to different models",
                 dir};
  }
  tokenizer_ = std::move(tokenizer);
  template_ = text::ChatTemplate::open(dir);
  if (!template_->ok() && template_->error().code != ErrorCode::kNotFound) {
    return template_->error();
  }
  collect_stop_ids();
  return {};
}

void Runtime::collect_stop_ids() {
  std::vector<std::int64_t> ids = defaults_.eos_ids;
  const auto& config_ids = artifact_.config().text.eos_ids;
  ids.insert(ids.end(), config_ids.begin(), config_ids.end());
  // Some artifacts list only one of the two, so both are looked up in their own tokenizer.
  for (const char* name : {"<|im_end|>", "<|endoftext|>"}) {
    if (const auto id = tokenizer_->find(name)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const std::int64_t id : ids) {
    if (id >= 0 && id < tokenizer_->size()) stop_ids_.push_back(static_cast<std::int32_t>(id));
  }
}

}  // namespace lockstep::decode
