// SPDX-License-Identifier: Apache-2.0
#include "lockstep/ops/make_backend.h"

#include "lockstep/base/limits.h"
#include "lockstep/ops/reference/reference_backend.h"

namespace lockstep::ops {
namespace {

Error unknown(const std::string& what, const std::string& found, const std::string& allowed) {
  return {.code = ErrorCode::kInvalidArgument,
          .message = "unknown " + what + " '" + found + "'; choose one of: " + allowed,
          .where = ""};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options) {
  if (options.precision != "f32") return unknown("precision", options.precision, "f32");
  if (options.threads < 0 || options.threads > limits::kThreadsMax) {
    return Error{.code = ErrorCode::kLimit,
                 .message = "thread count " + std::to_string(options.threads) + " is outside 0.." +
                            std::to_string(limits::kThreadsMax) + "; 0 takes all logical CPUs",
                 .where = ""};
  }
  if (options.name == "reference") {
    return std::unique_ptr<Backend>(std::make_unique<reference::ReferenceBackend>());
  }
  return unknown("back end", options.name, "cpu, reference");
}

}  // namespace lockstep::ops
