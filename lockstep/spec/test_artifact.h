// SPDX-License-Identifier: Apache-2.0
// Makes artifacts for tests: tiny random ones of any layout, and re-laid-out or re-quantised copies
// of an existing one. Part of lockstep_spec_testing, which only tests link.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "lockstep/base/result.h"
#include "lockstep/io/safetensors_writer.h"
#include "lockstep/quant/format.h"
#include "lockstep/spec/artifact.h"

namespace lockstep::spec {

enum class ExpertSpelling : std::uint8_t {
  kSwitch,  // switch_mlp.*: MLX
  kFused,   // experts.gate_up_proj, experts.down_proj
  kSplit,   // experts.E.*
};

// How to store a model. Roles without a format stay floats; so do matrices whose last axis the
// format's group does not divide.
struct TestRecipe {
  std::map<Role, quant::Format> target;
  std::map<Role, quant::Format> mtp;
  DType float_type = DType::kBF16;  // of everything unquantised
  DType a_log_type = DType::kBF16;

  TargetLayout layout = TargetLayout::kMlx;  // names, axes of conv taps and patch embedding
  ExpertSpelling experts = ExpertSpelling::kSwitch;
  NormConvention norms = NormConvention::kGamma;

  MtpLayout mtp_layout = MtpLayout::kInline;  // kNone leaves the head out
  ExpertSpelling mtp_experts = ExpertSpelling::kSwitch;
  NormConvention mtp_norms = NormConvention::kGamma;
  std::string side_file = "mtp/weights.safetensors";  // kSideFile
  std::string manifest;     // text of manifest.json beside the side file; empty: none
  std::string drafter_dir;  // kDrafter; empty: "drafter" inside the artifact

  int shard_count = 1;
  bool write_index = true;
  bool write_quantization = true;  // the block of config.json
  std::set<std::string> omit;      // stored names that are not written, for damaged artifacts
  std::function<void(io::TensorData&)> edit;  // called for each stored tensor before it is written
};

// A folder of its own for one test; gone when the test is.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  // A path below it that nothing stands at yet; another one each time.
  std::string fresh() { return path_ + "/" + std::to_string(count_++); }

 private:
  std::string path_;
  int count_ = 0;
};

// "source": Hugging Face with fused experts; "source-split"; "mlx": MLX bf16 with a head of 20
// tensors; "w4": affine 4 bit, 8-bit routers, mxfp8 head of 30 tensors; "w4-all": 4 bit everywhere,
// head of 46; "mxfp4": head of 31 with raw norms; "6bit": head of 36; "head-42". `group` is that of
// the affine formats. CHECKs the name.
TestRecipe test_recipe(const std::string& name, int group = 64);

struct TestArtifactOptions {
  // "tiny-a": hidden 96 (groups of 32), 3 delta key heads for 6 value heads, 7 experts top 3,
  // 131 vocabulary rows. "tiny-b": hidden 128, one attention layer in four, 8 experts top 2.
  std::string preset = "tiny-a";
  std::uint64_t seed = 1;
  bool vision = false;
  bool tied = false;  // the embedding serves as the head
  TestRecipe recipe = {};
};

// The preset's config.json, without a quantization block. CHECKs the name.
std::string test_config(const TestArtifactOptions& options);

// Writes a model with random weights; equal options give equal bytes. Creates the folder.
Status write_test_artifact(const std::string& dir, const TestArtifactOptions& options);

// Writes the model of `source` under another recipe; text files of its folder are copied.
Status write_converted_artifact(const Artifact& source, const std::string& out_dir,
                                const TestRecipe& recipe);

}  // namespace lockstep::spec
