// SPDX-License-Identifier: Apache-2.0
// A program outside the tree: opens a model, answers with and without drafts, compares the ids.
#include <iostream>

#include "lockstep/decode/generate.h"
#include "lockstep/decode/runtime.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc != 2) {
    std::cerr << "usage: example MODEL\n";
    return 2;
  }
  auto runtime = decode::Runtime::open({.model_dir = argv[1]});
  if (!runtime.ok()) {
    std::cerr << "error: " << runtime.error().to_string() << "\n";
    return 1;
  }
  decode::GenerateRequest request;
  request.prompt = "Explain speculative decoding.";
  request.temperature = 0;
  request.tokens_max = 32;
  auto drafted = decode::generate(**runtime, request);
  request.draft_depth = 0;
  auto plain = decode::generate(**runtime, request);
  if (!drafted.ok() || !plain.ok()) return 1;
  std::cout << drafted->answer.text << "\n";
  return drafted->outcome.token_ids == plain->outcome.token_ids ? 0 : 1;
}
