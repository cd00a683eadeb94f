// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep::ops {

// How far an op's result may depend on things other than its row. Tests pick the assertion from it.
enum class Exactness {
  kBitwise,       // equal to the reference bit for bit, on every instruction set
  kRowInvariant,  // a row's bits are the same alone and in any batch; bounded against the reference
  kBounded,       // within a derived bound only; may not take part in decoding
};

}  // namespace lockstep::ops
