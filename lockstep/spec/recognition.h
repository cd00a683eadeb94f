// SPDX-License-Identifier: Apache-2.0
// Number formats recognised from stored tensors (spec 6.7): dtype and shape of words, scales and
// biases say all, given the input width from the config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/quant/format.h"
#include "lockstep/spec/artifact.h"

namespace lockstep::spec {

// `shape` is the logical shape of the part, the input width last. Fails by name with expected and
// found when dtype, shape, or the set of tensors fit no format.
Result<quant::Format> recognise_format(const StoredPart& part,
                                       const std::vector<std::int64_t>& shape);

// "[256, 512, 64]"
std::string shape_text(const std::vector<std::int64_t>& shape);

// An error about a stored tensor; names file and tensor.
Error tensor_error(ErrorCode code, const io::TensorView& tensor, const std::string& message);

}  // namespace lockstep::spec
