// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/head_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "lockstep/io/json.h"
#include "lockstep/spec/json_fields.h"
#include "lockstep/spec/quantization_block.h"

namespace lockstep::spec {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(
      fs::symlink_status(path, ignored));  // a link that leads nowhere is an error later
}

Status read_norm_format(const io::Json& json, const std::string& path, HeadSource& head) {
  LOCKSTEP_TRY(auto format, JsonFields(json, path).string("rmsnorm_weight_format"));
  if (!format) return {};
  head.norm_format = std::move(format);
  head.norm_format_file = path;
  return {};
}

Status read_manifest(const fs::path& folder, HeadSource& head) {
  const std::string path = (folder / "manifest.json").string();
  if (!is_there(path)) return {};
  LOCKSTEP_TRY(const io::Json json, io::read_json_file(path));
  if (!json.is_object()) {
    return Error{ErrorCode::kFormat, std::string("is ") + json.kind_name() + ", expected an object",
                 path};
  }
  head.has_manifest = true;
  return read_norm_format(json, path, head);
}

Status read_drafter_config(const fs::path& folder, HeadSource& head) {
  const std::string path = (folder / "config.json").string();
  LOCKSTEP_TRY(const io::Json json, io::read_json_file(path));
  const JsonFields fields(json, path);
  LOCKSTEP_TRY(const auto type, fields.string("model_type"));
  if (!type || *type != "qwen3_5_mtp") {
    return fields.error(
        ErrorCode::kUnsupported, "model_type",
        "is '" + type.value_or("").substr(0, 60) + "', a drafter folder has 'qwen3_5_mtp'");
  }
  const io::Json* block = json.find("quantization");
  if (block == nullptr) block = json.find("quantization_config");
  if (block != nullptr) {
    LOCKSTEP_TRY(head.declared, parse_quantization(*block, path));
    for (DeclaredFormat& entry : *head.declared) {
      if (!entry.path.empty()) entry.path = head_name(entry.path);
    }
    std::sort(head.declared->begin(), head.declared->end(),
              [](const auto& a, const auto& b) { return a.path < b.path; });
  }
  return read_norm_format(json, path, head);
}

}  // namespace

std::string head_name(std::string_view stored) {
  return mtp_prefix(stored).empty() ? "mtp." + std::string(stored) : canonical_name(stored);
}

Result<HeadSource> open_drafter(const std::string& dir, std::vector<Shard>& shards) {
  HeadSource head;
  head.layout = MtpLayout::kDrafter;
  LOCKSTEP_TRY_STATUS(read_drafter_config(dir, head));
  LOCKSTEP_TRY_STATUS(read_manifest(dir, head));
  LOCKSTEP_TRY(ShardSet set, open_shards(dir));
  head.warnings = std::move(set.warnings);
  for (Shard& shard : set.shards) {
    shard.name = (fs::path(dir) / shard.name).string();
    for (const io::TensorView& tensor : shard.file.tensors()) {
      head.tensors.push_back(&tensor);
      if (mtp_prefix(tensor.name).empty()) head.bare_names = true;
    }
    shards.push_back(std::move(shard));
  }
  if (head.tensors.empty()) {
    return Error{ErrorCode::kNotFound, "holds no tensor of an MTP head", dir};
  }
  return head;
}

Result<std::optional<HeadSource>> open_side_file(const std::string& dir,
                                                 std::vector<Shard>& shards) {
  std::vector<std::string> names;
  for (const std::string_view name : {kMtpSideFolderFile, kMtpSideFile}) {
    const bool in_index = std::any_of(shards.begin(), shards.end(),
                                      [&](const Shard& shard) { return shard.name == name; });
    if (!in_index && is_there(fs::path(dir) / name)) names.emplace_back(name);
  }
  if (names.empty()) return std::optional<HeadSource>();
  if (names.size() > 1) {
    return Error{ErrorCode::kInconsistent,
                 "holds two side files of an MTP head, '" + names[0] + "' and '" + names[1] +
                     "'; remove one",
                 dir};
  }
  HeadSource head;
  head.layout = MtpLayout::kSideFile;
  LOCKSTEP_TRY_STATUS(read_manifest((fs::path(dir) / names[0]).parent_path(), head));
  LOCKSTEP_TRY(Shard shard, open_shard(dir, names[0]));
  std::size_t foreign = 0;
  for (const io::TensorView& tensor : shard.file.tensors()) {
    if (mtp_prefix(tensor.name).empty()) {
      ++foreign;
    } else {
      head.tensors.push_back(&tensor);
    }
  }
  if (head.tensors.empty()) {
    return Error{ErrorCode::kInconsistent,
                 "holds no tensor whose name begins with 'mtp.' or 'language_model.mtp.'",
                 (fs::path(dir) / names[0]).string()};
  }
  if (foreign > 0) {
    head.warnings.push_back("'" + names[0] + "' holds " + std::to_string(foreign) +
                            " tensors that are not of the MTP head; they are ignored");
  }
  shards.push_back(std::move(shard));
  return std::optional(std::move(head));
}

}  // namespace lockstep::spec
