// SPDX-License-Identifier: Apache-2.0
// CHECK ends the process when our own reasoning is wrong. Never for bad input: that is a Result.
#pragma once

namespace lockstep {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const char* message);

}  // namespace lockstep

#define CHECK_MSG(condition, message)                                      \
  do {                                                                     \
    if (!(condition)) [[unlikely]]                                         \
      ::lockstep::check_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)

#define CHECK(condition) CHECK_MSG(condition, "")

// For hot loops: checked in builds without NDEBUG only.
#ifdef NDEBUG
#define DCHECK(condition)         \
  do {                            \
    if (false) (void)(condition); \
  } while (false)
#else
#define DCHECK(condition) CHECK(condition)
#endif
