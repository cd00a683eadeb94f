// SPDX-License-Identifier: Apache-2.0
// The exactness class of every verb of Backend in precision f32. Tests choose their assertion from
// it, and a verb without a row here may not be added (registry_test.cpp).
#pragma once

#include <array>
#include <string_view>

#include "lockstep/ops/exactness.h"

namespace lockstep::ops {

struct VerbExactness {
  std::string_view verb;
  Exactness exactness;
  std::string_view order;  // what fixes the order of its operations
};

inline constexpr std::array kVerbs = {
    VerbExactness{"embed", Exactness::kBitwise, "exact expansion"},
    VerbExactness{"rms_norm", Exactness::kBitwise, "canonical dot"},
    VerbExactness{"linear", Exactness::kBitwise, "canonical dot"},
    VerbExactness{"project", Exactness::kBitwise, "rms_norm, linear"},
    VerbExactness{"delta", Exactness::kBitwise, "row after row; chunks of 64 in prefill"},
    VerbExactness{"attend", Exactness::kBitwise, "blocks of 64 positions, merged in order"},
    VerbExactness{"append_kv", Exactness::kBitwise, "as attend"},
    VerbExactness{"mix_out", Exactness::kBitwise, "linear, then one sum"},
    VerbExactness{"route", Exactness::kBitwise, "16-lane softmax sum; slot order"},
    VerbExactness{"experts_in", Exactness::kBitwise, "canonical dot"},
    VerbExactness{"experts_out", Exactness::kBitwise, "canonical dot; slot order"},
    VerbExactness{"fuse", Exactness::kBitwise, "rms_norm"},
    VerbExactness{"gather_rows", Exactness::kBitwise, "copy"},
};

}  // namespace lockstep::ops
