// SPDX-License-Identifier: Apache-2.0
// The geometry of one model, from config.json (spec section 1). Values that the family fixes but
// that some files leave out are checked, not guessed: a missing rope block is an error.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"

namespace lockstep::spec {

enum class LayerKind : std::uint8_t { kDelta, kAttention };

struct TextConfig {
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::vector<LayerKind> layer_kinds;  // one per layer

  // Gated full attention.
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rotary_dim = 0;  // int(head_dim * partial_rotary_factor), even
  double rope_theta = 0;
  std::array<std::int64_t, 3> mrope_section{};  // temporal, height, width; sum = rotary_dim / 2

  // Gated DeltaNet.
  std::int64_t conv_kernel = 0;
  std::int64_t delta_key_heads = 0;
  std::int64_t delta_value_heads = 0;
  std::int64_t delta_key_dim = 0;
  std::int64_t delta_value_dim = 0;

  // Mixture of experts, in every layer.
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_hidden = 0;
  std::int64_t shared_expert_hidden = 0;

  std::int64_t vocab_rows = 0;  // rows of embedding and head, padding included
  std::int64_t context_tokens_max = 0;
  double rms_eps = 0;
  bool tie_word_embeddings = false;
  int mtp_layers = 0;  // as declared; the tensors decide
  std::vector<std::int64_t> eos_ids;

  std::int64_t delta_qk_channels() const { return delta_key_heads * delta_key_dim; }
  std::int64_t delta_v_channels() const { return delta_value_heads * delta_value_dim; }
  std::int64_t conv_channels() const { return 2 * delta_qk_channels() + delta_v_channels(); }
};

struct VisionConfig {
  std::int64_t depth = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t intermediate = 0;
  std::int64_t in_channels = 0;
  std::int64_t patch = 0;
  std::int64_t temporal_patch = 0;
  std::int64_t merge = 0;
  std::int64_t out_hidden = 0;
  std::int64_t position_embeddings = 0;
};

// One entry of the `quantization` block, as written; a cross-check of what the tensors say.
struct DeclaredFormat {
  std::string path;       // module path, renamed to MLX style; empty for the global triple
  bool quantized = true;  // false: the path is declared unquantised
  std::string mode;       // affine, mxfp4, mxfp8, nvfp4
  int group_size = 0;
  int bits = 0;
};

struct ModelConfig {
  TextConfig text;
  bool has_vision = false;
  VisionConfig vision;
  std::int64_t image_token_id = -1;
  std::int64_t video_token_id = -1;
  std::int64_t vision_start_token_id = -1;
  std::int64_t vision_end_token_id = -1;
  bool mtp_hidden_is_pre_norm = false;  // mtp_hidden_state_mode; default post_norm
  std::vector<DeclaredFormat> quantization;
  std::vector<DeclaredFormat> mtp_quantization;
  std::vector<std::string> warnings;
};

Result<ModelConfig> load_config(const std::string& path);
Result<ModelConfig> parse_config(std::string_view json, const std::string& label);

}  // namespace lockstep::spec
