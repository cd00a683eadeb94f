// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/quantization_block.h"

#include <algorithm>
#include <map>
#include <optional>

#include "lockstep/spec/json_fields.h"
#include "lockstep/spec/tensor_table.h"

namespace lockstep::spec {
namespace {

struct Mode {
  const char* name;
  quant::Kind kind;
  int group_size;  // defaults of the mode
  int bits;
};
constexpr Mode kModes[] = {{"affine", quant::Kind::kAffine, 64, 4},
                           {"mxfp4", quant::Kind::kMxfp4, 32, 4},
                           {"mxfp8", quant::Kind::kMxfp8, 32, 8},
                           {"nvfp4", quant::Kind::kNvfp4, 16, 4}};

const Mode* find_mode(std::string_view name) {
  for (const Mode& mode : kModes) {
    if (name == mode.name) return &mode;
  }
  return nullptr;
}

Result<DeclaredFormat> parse_triple(const JsonFields& fields, std::string path) {
  LOCKSTEP_TRY(const auto name, fields.string("mode"));
  const Mode* mode = find_mode(name.value_or("affine"));
  if (mode == nullptr) {
    return fields.error(ErrorCode::kUnsupported, "mode",
                        "is '" + name->substr(0, 60) + "', expected affine, mxfp4, mxfp8 or nvfp4");
  }
  LOCKSTEP_TRY(const auto group, fields.integer("group_size", {.low = 1, .high = 4096}));
  LOCKSTEP_TRY(const auto bits, fields.integer("bits", {.low = 1, .high = 16}));
  return DeclaredFormat{.path = std::move(path),
                        .quantized = true,
                        .mode = mode->name,
                        .group_size = static_cast<int>(group.value_or(mode->group_size)),
                        .bits = static_cast<int>(bits.value_or(mode->bits))};
}

}  // namespace

Result<std::vector<DeclaredFormat>> parse_quantization(const io::Json& block,
                                                       const std::string& label) {
  std::vector<DeclaredFormat> declared;
  if (block.is_null()) return declared;
  if (!block.is_object()) {
    return Error{ErrorCode::kFormat,
                 std::string("'quantization' is ") + block.kind_name() + ", expected an object",
                 label};
  }
  const JsonFields global_fields(block, label, "quantization.");
  LOCKSTEP_TRY(const DeclaredFormat global, parse_triple(global_fields, ""));
  const bool has_global = block.find("group_size") || block.find("bits") || block.find("mode");
  if (has_global) declared.push_back(global);
  for (const auto& [key, value] : block.as_object()) {
    if (key.empty()) continue;  // the empty path stands for the global triple here
    std::string path = canonical_name(key);
    if (value.is_object()) {
      const JsonFields fields(value, label, "quantization." + key.substr(0, 200) + ".");
      LOCKSTEP_TRY(DeclaredFormat entry, parse_triple(fields, std::move(path)));
      declared.push_back(std::move(entry));
    } else if (value.is_bool()) {
      DeclaredFormat entry = global;
      entry.path = std::move(path);
      entry.quantized = value.as_bool();
      declared.push_back(std::move(entry));
    }
  }
  // find_override searches; the last of equal spellings counts, as for repeated keys.
  std::map<std::string, DeclaredFormat> by_path;
  for (const DeclaredFormat& entry : declared)
    by_path.insert_or_assign(entry.path, entry);
  declared.clear();
  for (auto& [path, entry] : by_path)
    declared.push_back(std::move(entry));
  return declared;
}

const DeclaredFormat* find_override(const std::vector<DeclaredFormat>& declared,
                                    std::string_view path) {
  const auto found = std::lower_bound(
      declared.begin(), declared.end(), path,
      [](const DeclaredFormat& entry, std::string_view key) { return entry.path < key; });
  return found != declared.end() && found->path == path ? &*found : nullptr;
}

const DeclaredFormat* find_global(const std::vector<DeclaredFormat>& declared) {
  return find_override(declared, "");
}

bool matches(const DeclaredFormat& declared, const quant::Format& format) {
  if (declared.quantized != format.quantized()) return false;
  if (!declared.quantized) return true;
  const Mode* mode = find_mode(declared.mode);
  return mode != nullptr && mode->kind == format.kind && declared.bits == format.bits &&
         declared.group_size == format.group;
}

std::string describe(const DeclaredFormat& declared) {
  if (!declared.quantized) return "float";
  return declared.mode + " " + std::to_string(declared.bits) + " bit group " +
         std::to_string(declared.group_size);
}

}  // namespace lockstep::spec
