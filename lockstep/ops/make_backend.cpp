// SPDX-License-Identifier: Apache-2.0
#include "lockstep/ops/make_backend.h"

#include <cstdlib>

#include "lockstep/base/cpu_features.h"
#include "lockstep/base/limits.h"
#include "lockstep/ops/cpu/cpu_backend.h"
#include "lockstep/ops/reference/reference_backend.h"

namespace lockstep::ops {
namespace {

Error unknown(const std::string& what, const std::string& found, const std::string& allowed) {
  return {.code = ErrorCode::kInvalidArgument,
          .message = "unknown " + what + " '" + found + "'; choose one of: " + allowed,
          .where = ""};
}

struct InstructionSet {
  const char* name;
  bool present;
  const cpu::KernelTable& (*kernels)();
};

// Widest first.
std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets;
#if defined(__x86_64__)
  const CpuFeatures& cpu = cpu_features();
  const bool avx2 = cpu.avx2 && cpu.fma && cpu.f16c;
  sets.push_back({"avx512", avx2 && cpu.avx512, cpu::avx512_kernels});
  sets.push_back({"avx2", avx2, cpu::avx2_kernels});
#endif
  sets.push_back({"scalar", true, cpu::scalar_kernels});
  return sets;
}

Result<const cpu::KernelTable*> choose_kernels(std::string isa) {
  if (isa.empty()) {
    // Read only when a back end is made; nothing in Lockstep sets the environment.
    const char* forced = std::getenv("LOCKSTEP_ISA");
    if (forced != nullptr) isa = forced;
  }
  std::string names;
  for (const InstructionSet& set : instruction_sets()) {
    if (isa.empty() ? set.present : isa == set.name && set.present) return &set.kernels();
    if (isa == set.name) {
      return Error{.code = ErrorCode::kUnsupported,
                   .message = "this CPU lacks the instruction set '" + isa +
                              "'; leave the choice open or take 'scalar'",
                   .where = ""};
    }
    names += (names.empty() ? "" : ", ") + std::string(set.name);
  }
  return unknown("instruction set", isa, names);
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
  if (options.name == "cpu") {
    LOCKSTEP_TRY(const cpu::KernelTable* kernels, choose_kernels(options.isa));
    return std::unique_ptr<Backend>(std::make_unique<cpu::CpuBackend>(*kernels, options.threads));
  }
  return unknown("back end", options.name, "cpu, reference");
}

}  // namespace lockstep::ops
