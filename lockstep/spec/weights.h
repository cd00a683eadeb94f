// SPDX-License-Identifier: Apache-2.0
// The weights of the text model and its MTP head, as views into the artifact's mapped files.
// Matrices are not copied. Vectors are expanded to float, gains as gamma = 1 + w whatever the
// stored convention (spec 2.4); linear_attn.norm is taken as it is.
#pragma once

#include <optional>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/quant/format.h"
#include "lockstep/spec/artifact.h"
#include "lockstep/spec/config.h"

namespace lockstep::spec {

struct MoeWeights {
  quant::MatrixView router;                                // [experts, hidden]
  quant::MatrixView shared_gate;                           // [1, hidden]
  quant::MatrixView shared_expert_gate, shared_expert_up;  // [shared_expert_hidden, hidden]
  quant::MatrixView shared_expert_down;                    // [hidden, shared_expert_hidden]
  // One per expert: [expert_hidden, hidden] twice, and [hidden, expert_hidden].
  std::vector<quant::MatrixView> gate, up, down;
};

struct DeltaMixer {
  quant::MatrixView qkv;              // [conv_channels, hidden]: q, k, v rows
  quant::MatrixView z;                // [value heads x value dim, hidden]
  quant::MatrixView b, a;             // [value heads, hidden]
  quant::MatrixView out;              // [hidden, value heads x value dim]
  std::vector<float> conv;            // [conv_channels, kernel], the last tap meets the current row
  std::vector<float> a_log, dt_bias;  // [value heads]
  std::vector<float> norm;            // [value dim]
};

struct AttentionMixer {
  quant::MatrixView q;  // [query heads x 2 head_dim, hidden]; per head query rows, then gate rows
  quant::MatrixView k, v;             // [kv heads x head_dim, hidden]
  quant::MatrixView o;                // [hidden, query heads x head_dim]
  std::vector<float> q_norm, k_norm;  // [head_dim]
};

struct LayerWeights {
  LayerKind kind = LayerKind::kDelta;
  std::vector<float> input_norm, post_norm;  // [hidden]
  DeltaMixer delta;                          // kDelta only
  AttentionMixer attention;                  // kAttention only
  MoeWeights moe;
};

struct MtpWeights {
  quant::MatrixView fc;  // [hidden, 2 hidden]: embedding columns first
  std::vector<float> norm_embedding, norm_hidden, norm;  // [hidden]
  LayerWeights layer;
};

struct Weights {
  quant::MatrixView embedding;  // [vocab_rows, hidden]
  quant::MatrixView head;       // [vocab_rows, hidden]; the embedding where the two are tied
  std::vector<float> final_norm;
  std::vector<LayerWeights> layers;
  std::optional<MtpWeights> mtp;
};

// The views live as long as the artifact. Reads all scales and small tensors once to refuse values
// that are not finite; the error names the tensor.
Result<Weights> bind_weights(const Artifact& artifact);

}  // namespace lockstep::spec
