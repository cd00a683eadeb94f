// SPDX-License-Identifier: Apache-2.0
// Which norm convention a group of tensors is stored in (spec 2.4). Source checkpoints keep w with
// gain 1 + w, MLX artifacts keep the gain; the target and the head decide separately, and a group
// decides as a whole, since in a small model single vectors look like the other convention.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "lockstep/spec/artifact.h"

namespace lockstep::spec {

// What is known without looking at values.
struct NormHints {
  // `rmsnorm_weight_format` of the file or its manifest, with the place it was read from.
  std::optional<std::string> stated_format;
  std::string stated_in;
  // Names of raw layout: an unmoved conv axis or experts.* keys. Empty: no such evidence.
  std::string raw_layout;
};

struct NormOutcome {
  NormDecision decision;
  std::string warning;  // not empty when the values speak against the decision
};

// `tensors`: those of one group; rows without a gain are skipped. Stated format first, then raw
// layout, then the majority of the vectors' means.
NormOutcome decide_norms(std::span<const StoredTensor* const> tensors, const NormHints& hints);

}  // namespace lockstep::spec
