// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/shards.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <unordered_map>

#include "lockstep/base/limits.h"
#include "lockstep/io/json.h"

namespace lockstep::spec {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSuffix = ".safetensors";

std::string shown(std::string_view name) {
  constexpr std::size_t kShownBytesMax = 200;
  return "'" + std::string(name.substr(0, kShownBytesMax)) + "'";
}

// A shard lies in the folder itself: separators and parents would let a file name leave it.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= limits::kTensorNameBytesMax && name.front() != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

Result<std::vector<std::string>> list_safetensors(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code code;
  fs::directory_iterator entry(dir, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    if (!name.ends_with(kSuffix) || name.front() == '.' || name == kMtpSideFile) continue;
    names.push_back(name);
    if (names.size() > limits::kShardsMax) {
      return Error{ErrorCode::kLimit,
                   "holds more than " + std::to_string(limits::kShardsMax) + " weight files", dir};
    }
  }
  if (code) return Error{ErrorCode::kIo, "can't be listed: " + code.message(), dir};
  std::sort(names.begin(), names.end());
  return names;
}

struct ShardNumber {
  std::string stem;  // "model" of model-00002-of-00003.safetensors
  int index = 0;
  int count = 0;
  std::size_t digits = 0;
};

std::optional<int> parse_digits(std::string_view text) {
  int value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Reads "-I-of-N", also where it follows the extension ("model.safetensors-1-of-2.safetensors").
std::optional<ShardNumber> shard_number(std::string_view name) {
  name.remove_suffix(kSuffix.size());
  const std::size_t of = name.rfind("-of-");
  if (of == std::string_view::npos || of == 0) return std::nullopt;
  const std::size_t dash = name.rfind('-', of - 1);
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view index = name.substr(dash + 1, of - dash - 1);
  const auto i = parse_digits(index);
  const auto n = parse_digits(name.substr(of + 4));
  if (!i || !n) return std::nullopt;
  return ShardNumber{std::string(name.substr(0, dash)), *i, *n, index.size()};
}

// Without an index only the file names tell that one of N is not there.
Status check_numbering(const std::string& dir, const std::vector<std::string>& names) {
  std::map<std::pair<std::string, int>, std::set<int>> sets;
  for (const std::string& name : names) {
    if (const auto number = shard_number(name)) {
      sets[{number->stem, number->count}].insert(number->index);
    }
  }
  for (const auto& [key, present] : sets) {
    const auto& [stem, count] = key;
    if (static_cast<int>(present.size()) == count) continue;
    int missing = 1;
    while (present.contains(missing))
      ++missing;
    return Error{ErrorCode::kNotFound,
                 "shard " + std::to_string(missing) + " of " + std::to_string(count) + " of " +
                     shown(stem) + " is missing (" + std::to_string(present.size()) +
                     " found); download it again",
                 dir};
  }
  return {};
}

using WeightMap = std::unordered_map<std::string, std::string>;  // tensor -> shard

Result<WeightMap> read_index(const std::string& path) {
  LOCKSTEP_TRY(const io::Json json, io::read_json_file(path));
  const io::Json* map = json.find("weight_map");
  if (map == nullptr || !map->is_object()) {
    return Error{ErrorCode::kFormat, "has no object 'weight_map'", path};
  }
  WeightMap result;
  for (const auto& [tensor, shard] : map->as_object()) {
    if (!shard.is_string()) {
      return Error{ErrorCode::kFormat,
                   "entry of tensor " + shown(tensor) + " is " + shard.kind_name() +
                       ", expected a file name",
                   path};
    }
    if (!is_plain_name(shard.as_string()) || !shard.as_string().ends_with(kSuffix)) {
      return Error{ErrorCode::kFormat,
                   "tensor " + shown(tensor) + " is said to be in " + shown(shard.as_string()) +
                       ", which is no plain *.safetensors name inside the folder",
                   path};
    }
    result.emplace(tensor, shard.as_string());
  }
  return result;
}

Status reconcile(const std::string& index_path, const WeightMap& index, const ShardSet& set) {
  std::unordered_map<std::string_view, const Shard*> holders;
  for (const Shard& shard : set.shards) {
    for (const io::TensorView& tensor : shard.file.tensors()) {
      holders.emplace(tensor.name, &shard);
      const auto entry = index.find(tensor.name);
      if (entry == index.end()) {
        return Error{ErrorCode::kInconsistent,
                     "does not list tensor " + shown(tensor.name) + ", which " + shown(shard.name) +
                         " holds; the index is stale or the shard is of "
                         "another model",
                     index_path};
      }
    }
  }
  for (const auto& [tensor, shard] : index) {
    const auto holder = holders.find(tensor);
    if (holder != holders.end() && holder->second->name == shard) continue;
    const std::string found =
        holder == holders.end() ? "no shard holds it" : shown(holder->second->name) + " holds it";
    return Error{ErrorCode::kInconsistent,
                 "says that tensor " + shown(tensor) + " is in " + shown(shard) + ", but " + found +
                     "; a shard is swapped or of another model, download the folder again",
                 index_path};
  }
  return {};
}

// Files of the folder that the index does not name.
Status check_extra_files(const std::string& dir, const std::set<std::string>& used, ShardSet& set) {
  LOCKSTEP_TRY(const auto names, list_safetensors(dir));
  for (const std::string& name : names) {
    if (used.contains(name)) continue;
    if (shard_number(name) || name.starts_with("model")) {
      return Error{ErrorCode::kInconsistent,
                   "holds " + shown(name) + ", which " + kIndexName +
                       " does not name; remove the file or mend the index",
                   dir};
    }
    set.warnings.push_back("file " + shown(name) + " is not named by the index and is ignored");
  }
  return {};
}

Status check_unique(const ShardSet& set) {
  std::unordered_map<std::string_view, const Shard*> holders;
  for (const Shard& shard : set.shards) {
    for (const io::TensorView& tensor : shard.file.tensors()) {
      const auto [holder, added] = holders.emplace(tensor.name, &shard);
      if (!added) {
        return Error{ErrorCode::kInconsistent,
                     "tensor " + shown(tensor.name) + " is also in " + shown(holder->second->name) +
                         "; remove one of the two files",
                     tensor.file};
      }
    }
  }
  return {};
}

Status open_all(const std::string& dir, const std::vector<std::string>& names, ShardSet& set) {
  set.shards.reserve(names.size());
  for (const std::string& name : names) {
    LOCKSTEP_TRY(Shard shard, open_shard(dir, name));
    set.shards.push_back(std::move(shard));
  }
  return check_unique(set);
}

}  // namespace

Result<Shard> open_shard(const std::string& dir, const std::string& name) {
  const std::string path = (fs::path(dir) / name).string();
  auto file = io::SafetensorsFile::open(path);
  if (!file.ok()) return file.error();
  Shard shard{.name = name, .bytes = 0, .file = std::move(file).value()};
  shard.bytes = shard.file.file_bytes();
  return shard;
}

Result<ShardSet> open_shards(const std::string& dir) {
  ShardSet set;
  const std::string index_path = (fs::path(dir) / kIndexName).string();
  std::error_code ignored;
  // A link that leads nowhere is there, and reading it says so.
  if (!fs::exists(fs::symlink_status(index_path, ignored))) {
    LOCKSTEP_TRY(const auto names, list_safetensors(dir));
    if (names.empty()) {
      return Error{ErrorCode::kNotFound, "holds no *.safetensors file; give a model folder", dir};
    }
    LOCKSTEP_TRY_STATUS(check_numbering(dir, names));
    LOCKSTEP_TRY_STATUS(open_all(dir, names, set));
    return set;
  }
  LOCKSTEP_TRY(const WeightMap index, read_index(index_path));
  std::set<std::string> used;
  for (const auto& [tensor, shard] : index)
    used.insert(shard);
  if (used.empty() || used.size() > limits::kShardsMax) {
    return Error{ErrorCode::kLimit,
                 "names " + std::to_string(used.size()) + " files, expected 1 to " +
                     std::to_string(limits::kShardsMax),
                 index_path};
  }
  LOCKSTEP_TRY_STATUS(open_all(dir, {used.begin(), used.end()}, set));
  LOCKSTEP_TRY_STATUS(reconcile(index_path, index, set));
  LOCKSTEP_TRY_STATUS(check_extra_files(dir, used, set));
  return set;
}

}  // namespace lockstep::spec
