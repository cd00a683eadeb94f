// SPDX-License-Identifier: Apache-2.0
// Regions of code compiled for one instruction set. Every standard header must be included before
// a region begins, so that no inline function of the library is compiled for it.
#pragma once

#define LOCKSTEP_PRAGMA(text) _Pragma(#text)

#if defined(__clang__)
#define LOCKSTEP_BEGIN_TARGET(features) \
  LOCKSTEP_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define LOCKSTEP_END_TARGET LOCKSTEP_PRAGMA(clang attribute pop)
#define LOCKSTEP_UNROLL LOCKSTEP_PRAGMA(clang loop unroll(full))
#else
#define LOCKSTEP_BEGIN_TARGET(features) \
  LOCKSTEP_PRAGMA(GCC push_options)     \
  LOCKSTEP_PRAGMA(GCC target(features))
#define LOCKSTEP_END_TARGET LOCKSTEP_PRAGMA(GCC pop_options)
#define LOCKSTEP_UNROLL LOCKSTEP_PRAGMA(GCC unroll 64)
#endif

#define LOCKSTEP_INLINE inline __attribute__((always_inline))
