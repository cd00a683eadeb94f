// SPDX-License-Identifier: Apache-2.0
// Sequence state of the reference back end. A speculative window keeps a full copy of the delta
// state before each of its rows, so rewind() is a plain restore.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/ops/backend.h"

namespace lockstep::ops::reference {

struct DeltaMemory {
  std::vector<float> state;  // [value_heads, value_dim, key_dim], to be multiplied by
  std::vector<float> scale;  // [value_heads]
  std::vector<float> conv;   // [kernel - 1, conv_channels], oldest first
};

struct DeltaLayer {
  DeltaShape shape;
  DeltaMemory now;
  std::int64_t position = 0;
  std::vector<DeltaMemory> window;  // before row i of the last speculative segment
};

struct AttentionLayer {
  AttentionShape shape;
  std::vector<float> keys, values;  // [length, kv_heads, head_dim]
  std::int64_t length = 0;
};

class ReferenceState final : public SequenceState {
 public:
  explicit ReferenceState(const StateShape& shape);

  std::int64_t position() const override { return position_; }
  void rewind(std::int64_t position) override;
  std::int64_t kv_length(int attention_layer) const override;
  void truncate_kv(int attention_layer, std::int64_t length) override;
  std::size_t bytes() const override;

  DeltaLayer& delta_layer(int layer);
  AttentionLayer& attention_layer(int layer);
  // Called by each verb that appended to a layer of the target.
  void advance(std::int64_t position) { position_ = position; }
  bool is_target(int attention_layer) const { return attention_layer < target_attention_layers_; }

 private:
  std::vector<DeltaLayer> delta_layers_;
  std::vector<AttentionLayer> attention_layers_;
  int target_attention_layers_ = 0;
  std::int64_t position_ = 0;
};

}  // namespace lockstep::ops::reference
