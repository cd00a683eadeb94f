// SPDX-License-Identifier: Apache-2.0
// What an artifact is, as data for `lockstep inspect`. Nothing is read but headers and the norm
// vectors that opening has read already.
#pragma once

#include "lockstep/io/json.h"
#include "lockstep/spec/artifact.h"

namespace lockstep::spec {

// {architecture, layout, roles[{group, role, format, tensors, parameters, bytes}], totals,
//  mtp{present, layout, tensor_count, norm_convention, formats[], parameters, bytes},
//  norms{target, mtp}{convention, evidence, gamma_votes, raw_votes, votes[]},
//  tokens, files[], warnings[]}. Tensors are counted as in the table: a bank is one.
io::Json inspect_artifact(const Artifact& artifact);

// One entry per tensor of the table that is present: {name, stored_name, group, role, dtype, shape,
// format, bytes, file}. Split experts are one entry; stored_name is that of the first.
io::Json list_tensors(const Artifact& artifact);

}  // namespace lockstep::spec
