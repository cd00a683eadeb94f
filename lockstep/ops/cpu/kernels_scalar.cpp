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
#include "lockstep/ops/cpu/simd_scalar.h"
#include "lockstep/ops/cpu/target.h"
#include "lockstep/ops/dot.h"
#include "lockstep/ops/math.h"
#include "lockstep/quant/format.h"

namespace lockstep::ops::cpu::scalar {
// clang-format off: the order matters.
#include "lockstep/ops/cpu/math_inl.h"
#include "lockstep/ops/cpu/rows_inl.h"
#include "lockstep/ops/cpu/stored_rows_inl.h"
#include "lockstep/ops/cpu/linear_inl.h"
#include "lockstep/ops/cpu/delta_inl.h"
#include "lockstep/ops/cpu/attend_inl.h"
// clang-format on
}  // namespace lockstep::ops::cpu::scalar

namespace lockstep::ops::cpu {

const KernelTable& scalar_kernels() {
  static constexpr KernelTable kTable = {.isa = "scalar",
                                         .dot_rows = scalar::dot_rows,
                                         .expand_row = scalar::expand_row,
                                         .rms_norm_row = scalar::rms_norm_row,
                                         .gated_product = scalar::gated_product,
                                         .add_weighted = scalar::add_weighted,
                                         .softmax = scalar::softmax,
                                         .norm_and_turn = scalar::norm_and_turn,
                                         .delta_head = scalar::delta_head,
                                         .attend = scalar::attend};
  return kTable;
}

}  // namespace lockstep::ops::cpu
