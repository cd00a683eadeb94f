// SPDX-License-Identifier: Apache-2.0
// Where the MTP head of an artifact lies (spec 2.2): among the target's tensors, in a side file, or
// in a drafter folder of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/io/safetensors.h"
#include "lockstep/spec/artifact.h"
#include "lockstep/spec/config.h"
#include "lockstep/spec/shards.h"

namespace lockstep::spec {

// The tensors of one head under one layout, not yet checked against the table.
struct HeadSource {
  MtpLayout layout = MtpLayout::kNone;
  std::vector<const io::TensorView*> tensors;
  bool bare_names = false;  // drafter keys without any prefix
  bool has_manifest = false;
  std::optional<std::string> norm_format;  // stated by manifest or drafter config
  std::string norm_format_file;
  // The drafter's own quantization block, paths canonical.
  std::optional<std::vector<DeclaredFormat>> declared;
  std::vector<std::string> warnings;
};

// "mtp.fc.weight" for any spelling of the head's tensor or module path.
std::string head_name(std::string_view stored);

// Both append the files they open to `shards`, whose elements may move; the tensors stay.
Result<HeadSource> open_drafter(const std::string& dir, std::vector<Shard>& shards);
// Nothing when the folder has no side file that `shards` does not name already.
Result<std::optional<HeadSource>> open_side_file(const std::string& dir,
                                                 std::vector<Shard>& shards);

}  // namespace lockstep::spec
