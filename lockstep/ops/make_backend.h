// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "lockstep/base/result.h"
#include "lockstep/ops/backend.h"

namespace lockstep::ops {

struct BackendOptions {
  std::string name = "cpu";       // "cpu" or "reference"
  std::string precision = "f32";  // only this one so far
  // "scalar", "avx2" or "avx512". Empty: the environment variable LOCKSTEP_ISA if set, else the
  // widest that this CPU has. All give the same bits.
  std::string isa;
  int threads = 0;  // 0: all logical CPUs
};

// Errors: a name, precision or instruction set that doesn't exist (kInvalidArgument) or that this
// CPU lacks (kUnsupported); a thread count beyond limits::kThreadsMax (kLimit).
Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options);

}  // namespace lockstep::ops
