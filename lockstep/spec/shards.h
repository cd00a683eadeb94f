// SPDX-License-Identifier: Apache-2.0
// The weight files of one folder, opened and reconciled with their index.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/io/safetensors.h"

namespace lockstep::spec {

inline constexpr std::string_view kMtpSideFile = "model-mtp.safetensors";
inline constexpr std::string_view kMtpSideFolderFile = "mtp/weights.safetensors";

struct Shard {
  std::string name;  // relative to the folder
  std::size_t bytes = 0;
  io::SafetensorsFile file;
};

struct ShardSet {
  std::vector<Shard> shards;
  std::vector<std::string> warnings;
};

// With model.safetensors.index.json: the files that it names, every entry compared with what the
// files hold. Without: every *.safetensors file of the folder. The head's side file is left out
// unless the index names it. No tensor name stands in two files.
Result<ShardSet> open_shards(const std::string& dir);

// One file of the folder, by relative name.
Result<Shard> open_shard(const std::string& dir, const std::string& name);

}  // namespace lockstep::spec
