// SPDX-License-Identifier: Apache-2.0
// The `quantization` block of config.json (spec 1.3).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/io/json.h"
#include "lockstep/quant/format.h"
#include "lockstep/spec/config.h"

namespace lockstep::spec {

// Paths are renamed to canonical form. Scalars and lists that are no module entry are skipped; an
// override without `mode` means affine whatever the global mode is.
Result<std::vector<DeclaredFormat>> parse_quantization(const io::Json& block,
                                                       const std::string& label);

// The entry for a module path, or null.
const DeclaredFormat* find_override(const std::vector<DeclaredFormat>& declared,
                                    std::string_view path);
const DeclaredFormat* find_global(const std::vector<DeclaredFormat>& declared);

// True when the entry describes `format` (scale types aside).
bool matches(const DeclaredFormat& declared, const quant::Format& format);
// "affine 4 bit group 64", "float".
std::string describe(const DeclaredFormat& declared);

}  // namespace lockstep::spec
