// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_set>

#include "lockstep/base/check.h"
#include "lockstep/spec/artifact.h"
#include "lockstep/spec/head_files.h"
#include "lockstep/spec/norms.h"
#include "lockstep/spec/quantization_block.h"
#include "lockstep/spec/recognition.h"
#include "lockstep/spec/shards.h"

namespace lockstep::spec {
namespace {

constexpr std::string_view kWeightSuffix = ".weight";

// Stored tensors by canonical name.
class Catalog {
 public:
  Status add(std::string name, const io::TensorView& tensor) {
    const auto [entry, added] = tensors_.emplace(std::move(name), &tensor);
    if (added) return {};
    return tensor_error(ErrorCode::kInconsistent, tensor,
                        "is the same tensor as '" + entry->second->name + "' in " +
                            entry->second->file + "; remove one of them");
  }

  const io::TensorView* find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : found->second;
  }

  // The tensors of the module whose weight has this name.
  StoredPart part(const std::string& name) {
    std::string module = name;
    if (module.ends_with(kWeightSuffix)) module.resize(module.size() - kWeightSuffix.size());
    const StoredPart part{find(name), find(module + ".scales"), find(module + ".biases")};
    for (const io::TensorView* tensor : {part.weight, part.scales, part.biases}) {
      if (tensor != nullptr) used_.insert(tensor);
    }
    return part;
  }

  std::size_t size() const { return tensors_.size(); }
  std::size_t used_count() const { return used_.size(); }
  std::vector<std::string> unused() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) {
      if (!used_.contains(tensor)) names.push_back(tensor->name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  bool any_below(std::string_view prefix) const {
    return std::any_of(tensors_.begin(), tensors_.end(),
                       [&](const auto& entry) { return entry.first.starts_with(prefix); });
  }

 private:
  std::unordered_map<std::string, const io::TensorView*> tensors_;
  std::unordered_set<const io::TensorView*> used_;
};

std::vector<std::int64_t> source_shape(const ExpectedTensor& expected) {
  const std::vector<std::int64_t>& s = expected.shape;
  if (expected.row->transform == Transform::kMoveConvAxis) return {s[0], s[2], s[1]};
  CHECK(expected.row->transform == Transform::kMovePatchAxis);
  return {s[0], s[4], s[1], s[2], s[3]};
}

}  // namespace

// The steps of Artifact::open, in order.
class ArtifactOpener {
 public:
  ArtifactOpener(std::string dir, const OpenOptions& options) : options_(options) {
    artifact_.dir_ = std::move(dir);
  }

  Result<Artifact> open() {
    const std::string config_path =
        (std::filesystem::path(artifact_.dir_) / "config.json").string();
    LOCKSTEP_TRY(artifact_.config_, load_config(config_path));
    for (const std::string& warning : artifact_.config_.warnings)
      warn(warning);
    LOCKSTEP_TRY(ShardSet set, open_shards(artifact_.dir_));
    for (const std::string& warning : set.warnings)
      warn(warning);
    shards_ = std::move(set.shards);
    LOCKSTEP_TRY_STATUS(sort_tensors());
    LOCKSTEP_TRY_STATUS(choose_head());
    LOCKSTEP_TRY_STATUS(resolve_all());
    LOCKSTEP_TRY_STATUS(refuse_second_head_layer());
    warn_of_unused(target_, "the artifact");
    warn_of_unused(head_catalog_, "the MTP head");
    LOCKSTEP_TRY_STATUS(cross_check());
    LOCKSTEP_TRY_STATUS(decide_all_norms());
    keep_files();
    return std::move(artifact_);
  }

 private:
  void warn(std::string text) { artifact_.warnings_.push_back(std::move(text)); }

  // Target and vision into the catalog, tensors of a head by their prefix.
  Status sort_tensors() {
    for (const Shard& shard : shards_) {
      for (const io::TensorView& tensor : shard.file.tensors()) {
        const std::string_view prefix = mtp_prefix(tensor.name);
        if (!prefix.empty()) {
          inline_heads_[std::string(prefix)].push_back(&tensor);
          continue;
        }
        std::string name = canonical_name(tensor.name);
        // A buffer that some tools save; positions are computed.
        if (name.starts_with("vision_tower.") && name.find("position_ids") != std::string::npos) {
          continue;
        }
        LOCKSTEP_TRY_STATUS(target_.add(std::move(name), tensor));
      }
    }
    return {};
  }

  Status choose_head() {
    if (!options_.drafter_dir.empty()) {
      LOCKSTEP_TRY(head_, open_drafter(options_.drafter_dir, shards_));
      if (!inline_heads_.empty()) warn("the drafter folder replaces the artifact's own MTP head");
    } else {
      LOCKSTEP_TRY_STATUS(choose_own_head());
    }
    for (const std::string& warning : head_.warnings)
      warn(warning);
    for (const io::TensorView* tensor : head_.tensors) {
      LOCKSTEP_TRY_STATUS(head_catalog_.add(head_name(tensor->name), *tensor));
    }
    artifact_.mtp_layout_ = head_.layout;
    const int declared = artifact_.config_.text.mtp_layers;
    if (head_.layout == MtpLayout::kNone && declared > 0) {
      warn("config.json declares " + std::to_string(declared) +
           " MTP layer(s), but the artifact has no MTP tensors; it runs without speculation");
    }
    return {};
  }

  Status choose_own_head() {
    LOCKSTEP_TRY(auto side, open_side_file(artifact_.dir_, shards_));
    if (inline_heads_.empty()) {
      if (side) head_ = std::move(*side);
      return {};
    }
    if (inline_heads_.size() > 1) {
      return Error{ErrorCode::kInconsistent,
                   "holds MTP tensors below both '" + inline_heads_.begin()->first + "' and '" +
                       inline_heads_.rbegin()->first + "'; expected one head",
                   artifact_.dir_};
    }
    if (side) warn("the side file's MTP head is ignored, since the index holds one as well");
    auto& [prefix, tensors] = *inline_heads_.begin();
    constexpr std::pair<std::string_view, MtpLayout> kLayouts[] = {
        {"mtp.", MtpLayout::kInline},
        {"language_model.mtp.", MtpLayout::kNested},
        {"model.mtp.", MtpLayout::kModel},
        {"model.language_model.mtp.", MtpLayout::kModelNested}};
    for (const auto& [known, layout] : kLayouts) {
      if (prefix == known) head_.layout = layout;
    }
    head_.tensors = std::move(tensors);
    return {};
  }

  Status resolve_all() {
    const ModelConfig& config = artifact_.config_;
    const bool stored_vision = target_.any_below("vision_tower.");
    artifact_.has_vision_ = config.has_vision && stored_vision;
    if (config.has_vision && !stored_vision) {
      warn("config.json describes a vision tower, but the artifact has none; images can't be read");
    }
    artifact_.head_is_embedding_ = config.text.tie_word_embeddings;
    for (ExpectedTensor& expected : expected_tensors(config)) {
      if (expected.group == Group::kVision && !artifact_.has_vision_) continue;
      if (expected.group == Group::kMtp && !artifact_.has_mtp()) continue;
      if (expected.row->role == Role::kHead && artifact_.head_is_embedding_) {
        if (target_.part(expected.name).weight != nullptr) {
          warn("config.json ties the head to the embedding; the stored lm_head is not used");
        }
        continue;
      }
      Catalog& catalog = expected.group == Group::kMtp ? head_catalog_ : target_;
      LOCKSTEP_TRY(StoredTensor stored, resolve(std::move(expected), catalog));
      artifact_.by_name_.emplace(stored.expected.name, artifact_.tensors_.size());
      artifact_.tensors_.push_back(std::move(stored));
    }
    artifact_.mtp_tensor_count_ = head_catalog_.used_count();
    return {};
  }

  Result<StoredTensor> resolve(ExpectedTensor expected, Catalog& catalog) {
    StoredTensor stored;
    stored.expected = std::move(expected);
    LOCKSTEP_TRY_STATUS(find_parts(catalog, stored));
    LOCKSTEP_TRY(const std::vector<std::int64_t> shape, stored_shape(stored));
    for (std::size_t i = 0; i < stored.parts.size(); ++i) {
      const StoredPart& part = stored.parts[i];
      LOCKSTEP_TRY(const quant::Format format, recognise_format(part, shape));
      if (i > 0 && format != stored.format) {
        return tensor_error(ErrorCode::kUnsupported, *part.weight,
                            "is " + format.name() + ", but expert 0 is " + stored.format.name() +
                                "; expected one format for all experts of a bank");
      }
      stored.format = format;
    }
    if (stored.format.quantized() && !stored.expected.row->quantizable()) {
      return tensor_error(ErrorCode::kUnsupported, *stored.parts[0].weight,
                          "is " + stored.format.name() + ", expected a float type");
    }
    return stored;
  }

  // Looks for the MLX, the fused and the split spelling, in this order.
  Status find_parts(Catalog& catalog, StoredTensor& stored) {
    const ExpectedTensor& expected = stored.expected;
    StoredPart part = catalog.part(expected.name);
    if (part.weight == nullptr && !expected.row->fused.empty()) {
      const std::string fused = expected.fused_name();
      StoredPart candidate = catalog.part(fused);
      if (candidate.weight == nullptr) candidate = catalog.part(fused + ".weight");
      if (candidate.weight != nullptr) {
        if (expected.row->transform == Transform::kFirstRows) stored.storage = Storage::kFusedFirst;
        if (expected.row->transform == Transform::kSecondRows) {
          stored.storage = Storage::kFusedSecond;
        }
        part = candidate;
        note_expert_keys(expected, *candidate.weight, true);
      }
    }
    if (part.weight != nullptr) {
      stored.parts.push_back(part);
      return {};
    }
    if (expected.row->split.empty() || !has_split(catalog, expected)) {
      return missing(catalog, expected, expected.name, part);
    }
    stored.storage = Storage::kSplit;
    for (std::int64_t expert = 0; expert < artifact_.config_.text.experts; ++expert) {
      const std::string name = expected.split_name(expert);
      const StoredPart piece = catalog.part(name);
      if (piece.weight == nullptr) return missing(catalog, expected, name, piece);
      stored.parts.push_back(piece);
    }
    note_expert_keys(expected, *stored.parts[0].weight, false);
    return {};
  }

  bool has_split(const Catalog& catalog, const ExpectedTensor& expected) const {
    return catalog.find(expected.split_name(0)) != nullptr ||
           catalog.find(expected.split_name(1)) != nullptr;
  }

  // Remembers the layout evidence that source spellings of experts are.
  void note_expert_keys(const ExpectedTensor& expected, const io::TensorView& tensor, bool fused) {
    if (expected.group == Group::kMtp) {
      if (head_raw_layout_.empty()) head_raw_layout_ = "'" + tensor.name + "' is a source spelling";
      return;
    }
    artifact_.target_layout_ = TargetLayout::kSource;
    if (fused && target_raw_layout_.empty()) {
      target_raw_layout_ = "'" + tensor.name + "' is a source spelling";
    }
  }

  Error missing(const Catalog& catalog, const ExpectedTensor& expected, const std::string& name,
                const StoredPart& part) const {
    std::string what = "tensor '" + name + "'";
    if (expected.group == Group::kTarget && expected.source_name() != name) {
      what += " (in a source: '" + expected.source_name() + "')";
    }
    if (part.scales != nullptr) what += ", whose '.scales' are there,";
    if (expected.group == Group::kMtp) {
      return Error{ErrorCode::kNotFound,
                   what + " is missing from the MTP head, of which " +
                       std::to_string(catalog.size()) +
                       " tensors are there; download the head again or remove it",
                   head_.tensors[0]->file};
    }
    return Error{ErrorCode::kNotFound, what + " is missing; download the artifact again",
                 artifact_.dir_};
  }

  // The shape that the stored pieces must have: axes not moved yet, two halves fused, one expert.
  Result<std::vector<std::int64_t>> stored_shape(StoredTensor& stored) {
    const ExpectedTensor& expected = stored.expected;
    std::vector<std::int64_t> shape = expected.shape;
    const Transform transform = expected.row->transform;
    if (transform == Transform::kMoveConvAxis || transform == Transform::kMovePatchAxis) {
      const io::TensorView& weight = *stored.parts[0].weight;
      if (weight.shape == shape || weight.shape != source_shape(expected)) return shape;
      stored.source_axes = true;
      if (transform == Transform::kMoveConvAxis) {
        artifact_.target_layout_ = TargetLayout::kSource;
        if (target_raw_layout_.empty()) {
          target_raw_layout_ = "'" + weight.name + "' has shape " + shape_text(weight.shape);
        }
      }
      return source_shape(expected);
    }
    if (stored.storage == Storage::kFusedFirst || stored.storage == Storage::kFusedSecond) {
      shape[1] *= 2;
    } else if (stored.storage == Storage::kSplit) {
      shape.erase(shape.begin());
    }
    return shape;
  }

  Status refuse_second_head_layer() const {
    for (const io::TensorView* tensor : head_.tensors) {
      const std::string name = head_name(tensor->name);
      if (name.starts_with("mtp.layers.") && !name.starts_with("mtp.layers.0.")) {
        return tensor_error(ErrorCode::kUnsupported, *tensor,
                            "belongs to a second MTP layer, this build runs heads of one");
      }
    }
    return {};
  }

  void warn_of_unused(const Catalog& catalog, const char* place) {
    const std::vector<std::string> names = catalog.unused();
    if (names.empty()) return;
    constexpr std::size_t kShownMax = 5;
    std::string list;
    for (std::size_t i = 0; i < std::min(names.size(), kShownMax); ++i) {
      list += (i > 0 ? ", " : "") + names[i].substr(0, 200);
    }
    if (names.size() > kShownMax) list += ", ...";
    warn(std::to_string(names.size()) + " tensor(s) of " + place +
         " are not part of this model and are ignored: " + list);
  }

  // --- the quantization block against the tensors ----------------------------------------

  struct Declaration {
    const DeclaredFormat* entry = nullptr;
    bool is_override = false;
  };

  Declaration declaration_of(const StoredTensor& stored) const {
    const bool head = stored.expected.group == Group::kMtp;
    const ModelConfig& config = artifact_.config_;
    const auto* declared = &config.quantization;
    // A normal block's global triple says nothing about the head: mixed artifacts exist.
    bool global_counts = !head;
    if (head && head_.declared) {
      declared = &*head_.declared;
      global_counts = true;
    } else if (head && !config.mtp_quantization.empty()) {
      declared = &config.mtp_quantization;
      global_counts = true;
    }
    const std::string& stored_name = stored.parts[0].weight->name;
    std::string path = head ? head_name(stored_name) : canonical_name(stored_name);
    if (path.ends_with(kWeightSuffix)) path.resize(path.size() - kWeightSuffix.size());
    for (const std::string& candidate : {stored.expected.module_path(), path}) {
      if (const auto* entry = find_override(*declared, candidate)) return {entry, true};
    }
    return {global_counts ? find_global(*declared) : nullptr, false};
  }

  Status cross_check() {
    bool undeclared = false;
    for (const StoredTensor& stored : artifact_.tensors_) {
      if (!stored.expected.row->quantizable()) continue;
      const auto [entry, is_override] = declaration_of(stored);
      // Whatever has no scales is a float; the global triple does not reach it.
      if (!is_override && !stored.format.quantized()) continue;
      if (entry == nullptr) {
        undeclared = undeclared || stored.expected.group != Group::kMtp;
        continue;
      }
      if (matches(*entry, stored.format)) continue;
      return tensor_error(ErrorCode::kInconsistent, *stored.parts[0].weight,
                          "is " + stored.format.name() + " by its tensors, but config.json says " +
                              describe(*entry) + (is_override ? " for it" : " for all") +
                              "; one of the two is of another artifact");
    }
    if (undeclared) {
      warn("config.json has no 'quantization' block; formats are taken from the tensors");
    }
    warn_of_idle_declarations();
    return {};
  }

  // Statements of config.json that no tensor bears out.
  void warn_of_idle_declarations() {
    const ModelConfig& config = artifact_.config_;
    const auto quantized = [](const StoredTensor& stored) { return stored.format.quantized(); };
    if (!config.quantization.empty() &&
        std::none_of(artifact_.tensors_.begin(), artifact_.tensors_.end(), quantized)) {
      warn("config.json declares quantised weights, but every tensor is a float");
    }
    const int declared = config.text.mtp_layers;
    if (artifact_.has_mtp() && declared != 1) {
      warn("config.json declares " + std::to_string(declared) +
           " MTP layers, but the artifact has 1; it is used");
    }
    for (const std::int64_t id : config.text.eos_ids) {
      if (id >= config.text.vocab_rows) {
        warn("config.json names the end token " + std::to_string(id) + ", which is beyond the " +
             std::to_string(config.text.vocab_rows) + " rows of the vocabulary; it is ignored");
      }
    }
  }

  // --- norm conventions ------------------------------------------------------------------

  Result<NormHints> stated_hints(std::span<const StoredTensor* const> group) const {
    NormHints hints;
    for (const StoredTensor* stored : group) {
      if (stored->expected.row->gain == Gain::kNo) continue;
      const std::string& file = stored->parts[0].weight->file;
      const auto metadata = metadata_by_file_.find(file);
      CHECK(metadata != metadata_by_file_.end());
      const auto stated = metadata->second->find("rmsnorm_weight_format");
      if (stated == metadata->second->end()) continue;
      if (hints.stated_format && *hints.stated_format != stated->second) {
        return Error{ErrorCode::kInconsistent,
                     "metadata 'rmsnorm_weight_format' is '" + stated->second + "', but '" +
                         *hints.stated_format + "' in " + hints.stated_in,
                     file};
      }
      hints.stated_format = stated->second;
      hints.stated_in = file;
    }
    return hints;
  }

  std::vector<const StoredTensor*> group(Group wanted) const {
    std::vector<const StoredTensor*> tensors;
    for (const StoredTensor& stored : artifact_.tensors_) {
      if (stored.expected.group == wanted) tensors.push_back(&stored);
    }
    return tensors;
  }

  NormDecision decide(std::span<const StoredTensor* const> tensors, const NormHints& hints,
                      const char* name) {
    NormOutcome outcome = decide_norms(tensors, hints);
    if (hints.stated_format && *hints.stated_format != "mlx_gamma") {
      warn(hints.stated_in + ": unknown rmsnorm_weight_format '" +
           hints.stated_format->substr(0, 60) + "' is ignored");
    }
    if (!outcome.warning.empty()) warn(std::string(name) + ": " + outcome.warning);
    return std::move(outcome.decision);
  }

  Status decide_all_norms() {
    for (const Shard& shard : shards_) {
      for (const io::TensorView& tensor : shard.file.tensors()) {
        metadata_by_file_.emplace(tensor.file, &shard.file.metadata());
        break;
      }
    }
    const auto target = group(Group::kTarget);
    LOCKSTEP_TRY(NormHints hints, stated_hints(target));
    hints.raw_layout = target_raw_layout_;
    artifact_.target_norms_ = decide(target, hints, "target");
    if (!artifact_.has_mtp()) return {};

    const auto head = group(Group::kMtp);
    LOCKSTEP_TRY(NormHints head_hints, stated_hints(head));
    if (head_.norm_format) {
      head_hints.stated_format = head_.norm_format;
      head_hints.stated_in = head_.norm_format_file;
    }
    // Side files with a manifest and bare drafters keep source spellings of experts beside gamma.
    if (!head_.has_manifest && !head_.bare_names) head_hints.raw_layout = head_raw_layout_;
    artifact_.mtp_norms_ = decide(head, head_hints, "MTP head");
    return {};
  }

  void keep_files() {
    for (Shard& shard : shards_) {
      artifact_.files_.push_back({shard.name, shard.bytes, shard.file.tensors().size()});
      artifact_.shards_.push_back(std::move(shard.file));
    }
  }

  const OpenOptions& options_;
  Artifact artifact_;
  std::vector<Shard> shards_;
  Catalog target_;
  std::map<std::string, std::vector<const io::TensorView*>> inline_heads_;
  HeadSource head_;
  Catalog head_catalog_;
  std::string target_raw_layout_;
  std::string head_raw_layout_;
  std::unordered_map<std::string, const std::map<std::string, std::string>*> metadata_by_file_;
};

Result<Artifact> Artifact::open(const std::string& dir, const OpenOptions& options) {
  return ArtifactOpener(dir, options).open();
}

}  // namespace lockstep::spec
