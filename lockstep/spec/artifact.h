// SPDX-License-Identifier: Apache-2.0
// A model folder as it lies on the disk: its files opened and checked, every tensor of the table
// found in whatever layout it is stored (spec 2.1, 2.2), formats recognised (6.7), norm conventions
// decided (2.4). Nothing is invented: what is missing is an error by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/io/json.h"
#include "lockstep/io/safetensors.h"
#include "lockstep/quant/format.h"
#include "lockstep/spec/config.h"
#include "lockstep/spec/tensor_table.h"

namespace lockstep::spec {

struct OpenOptions {
  std::string drafter_dir;  // standalone drafter folder; empty: the head of the artifact itself
};

enum class TargetLayout : std::uint8_t { kSource, kMlx };
const char* target_layout_name(TargetLayout layout);

enum class MtpLayout : std::uint8_t {
  kNone,
  kInline,       // mtp.*
  kNested,       // language_model.mtp.*
  kModel,        // model.mtp.*
  kModelNested,  // model.language_model.mtp.*
  kSideFile,     // mtp/weights.safetensors or model-mtp.safetensors
  kDrafter,      // a folder of its own
};
const char* mtp_layout_name(MtpLayout layout);

enum class NormConvention : std::uint8_t {
  kRaw,    // zero-centred: the gain is 1 + w
  kGamma,  // the gain itself
};
const char* norm_convention_name(NormConvention convention);

struct NormVote {
  std::string tensor;
  double mean = 0;
  double threshold = 0;  // below: raw
  NormConvention vote = NormConvention::kGamma;
};

struct NormDecision {
  NormConvention convention = NormConvention::kGamma;
  std::string evidence;  // "metadata: ...", "layout: ..." or "statistics: ..."
  std::vector<NormVote> votes;
};

// The stored tensors of one matrix or vector.
struct StoredPart {
  const io::TensorView* weight = nullptr;
  const io::TensorView* scales = nullptr;  // quantised only
  const io::TensorView* biases = nullptr;  // affine only
};

enum class Storage : std::uint8_t {
  kWhole,        // one tensor; expert banks carry a leading expert axis
  kFusedFirst,   // rows [0, n) of each expert of a fused bank with 2n rows
  kFusedSecond,  // rows [n, 2n)
  kSplit,        // one part per expert
};

// One tensor of the table, found.
struct StoredTensor {
  ExpectedTensor expected;
  quant::Format format;
  Storage storage = Storage::kWhole;
  bool source_axes = false;  // conv taps or patch embedding with the axes of the source
  std::vector<StoredPart> parts;

  // The matrix [rows, cols], or that of one expert of a bank. Rank 2 and 3 only.
  quant::MatrixView matrix(std::int64_t expert = 0) const;
  // All values of an unquantised tensor as float, in stored order.
  std::vector<float> values() const;
  // Bytes of codes, scales and biases.
  std::size_t bytes() const;
};

struct ArtifactFile {
  std::string name;  // relative to the folder
  std::size_t bytes = 0;
  std::size_t tensor_count = 0;
};

class Artifact {
 public:
  static Result<Artifact> open(const std::string& dir, const OpenOptions& options = {});

  const std::string& dir() const { return dir_; }
  const ModelConfig& config() const { return config_; }
  TargetLayout target_layout() const { return target_layout_; }
  bool has_vision() const { return has_vision_; }
  bool has_mtp() const { return mtp_layout_ != MtpLayout::kNone; }
  MtpLayout mtp_layout() const { return mtp_layout_; }
  std::size_t mtp_tensor_count() const { return mtp_tensor_count_; }  // as stored
  // True: the embedding serves as the output head.
  bool head_is_embedding() const { return head_is_embedding_; }

  // Present tensors in table order, and one by canonical name (null when absent).
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;

  const NormDecision& target_norms() const { return target_norms_; }
  const NormDecision& mtp_norms() const { return mtp_norms_; }  // only if has_mtp()
  const std::vector<ArtifactFile>& files() const { return files_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  friend class ArtifactOpener;
  Artifact() = default;

  std::string dir_;
  ModelConfig config_;
  TargetLayout target_layout_ = TargetLayout::kMlx;
  bool has_vision_ = false;
  MtpLayout mtp_layout_ = MtpLayout::kNone;
  std::size_t mtp_tensor_count_ = 0;
  bool head_is_embedding_ = false;
  std::vector<io::SafetensorsFile> shards_;
  std::vector<ArtifactFile> files_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string, std::size_t> by_name_;
  NormDecision target_norms_;
  NormDecision mtp_norms_;
  std::vector<std::string> warnings_;
};

// Fails by tensor name when a scale or bias is NaN or infinite, when an E8M0 scale is the byte 255
// (spec 6.2), or when a value of an unquantised vector is not finite. Float matrices are not read.
Status check_values(const StoredTensor& tensor);

}  // namespace lockstep::spec
