// SPDX-License-Identifier: Apache-2.0
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's own AVX-512 headers read "undefined" registers on purpose and trip over it (its bug
// 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/base/dtype.h"
#include "lockstep/ops/cpu/kernels.h"
#include "lockstep/ops/cpu/simd_avx512.h"
#include "lockstep/ops/cpu/target.h"
#include "lockstep/ops/dot.h"
#include "lockstep/ops/math.h"
#include "lockstep/quant/format.h"

LOCKSTEP_BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
namespace lockstep::ops::cpu::avx512 {
// clang-format off: the order matters.
#include "lockstep/ops/cpu/math_inl.h"
#include "lockstep/ops/cpu/rows_inl.h"
#include "lockstep/ops/cpu/stored_rows_inl.h"
#include "lockstep/ops/cpu/linear_inl.h"
#include "lockstep/ops/cpu/delta_inl.h"
#include "lockstep/ops/cpu/attend_inl.h"
// clang-format on
}  // namespace lockstep::ops::cpu::avx512
LOCKSTEP_END_TARGET

namespace lockstep::ops::cpu {

const KernelTable& avx512_kernels() {
  static constexpr KernelTable kTable = {.isa = "avx512",
                                         .dot_rows = avx512::dot_rows,
                                         .expand_row = avx512::expand_row,
                                         .rms_norm_row = avx512::rms_norm_row,
                                         .gated_product = avx512::gated_product,
                                         .add_weighted = avx512::add_weighted,
                                         .softmax = avx512::softmax,
                                         .norm_and_turn = avx512::norm_and_turn,
                                         .delta_head = avx512::delta_head,
                                         .attend = avx512::attend};
  return kTable;
}

}  // namespace lockstep::ops::cpu
