// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/base/dtype.h"
#include "lockstep/ops/cpu/kernels.h"
#include "lockstep/ops/cpu/simd_avx2.h"
#include "lockstep/ops/cpu/target.h"
#include "lockstep/ops/dot.h"
#include "lockstep/ops/math.h"
#include "lockstep/quant/format.h"

LOCKSTEP_BEGIN_TARGET("avx2,fma,f16c")
namespace lockstep::ops::cpu::avx2 {
// clang-format off: the order matters.
#include "lockstep/ops/cpu/math_inl.h"
#include "lockstep/ops/cpu/rows_inl.h"
#include "lockstep/ops/cpu/stored_rows_inl.h"
#include "lockstep/ops/cpu/linear_inl.h"
#include "lockstep/ops/cpu/delta_inl.h"
#include "lockstep/ops/cpu/attend_inl.h"
// clang-format on
}  // namespace lockstep::ops::cpu::avx2
LOCKSTEP_END_TARGET

namespace lockstep::ops::cpu {

const KernelTable& avx2_kernels() {
  static constexpr KernelTable kTable = {.isa = "avx2",
                                         .dot_rows = avx2::dot_rows,
                                         .expand_row = avx2::expand_row,
                                         .rms_norm_row = avx2::rms_norm_row,
                                         .gated_product = avx2::gated_product,
                                         .add_weighted = avx2::add_weighted,
                                         .softmax = avx2::softmax,
                                         .norm_and_turn = avx2::norm_and_turn,
                                         .delta_head = avx2::delta_head,
                                         .attend = avx2::attend};
  return kTable;
}

}  // namespace lockstep::ops::cpu
