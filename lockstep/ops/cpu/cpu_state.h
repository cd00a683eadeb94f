// SPDX-License-Identifier: Apache-2.0
// Sequence state of the CPU back end. A delta layer holds a committed state and the rows of the
// last speculative window; rewind() only changes how many of those rows count. The next delta()
// applies them with the arithmetic of the window itself.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/ops/backend.h"
#include "lockstep/ops/cpu/arena.h"
#include "lockstep/ops/cpu/kernels.h"

namespace lockstep::ops::cpu {

class DeltaLayer {
 public:
  explicit DeltaLayer(const DeltaShape& shape);

  // Pointers of a segment that starts at `position`.
  DeltaHeadArgs begin(const Segment& segment) const;
  // After all heads have run.
  void end(const Segment& segment);
  // Keeps rows [0, position).
  void rewind(std::int64_t position);

  std::int64_t position() const { return committed_ + kept_; }
  float* state(std::int64_t head) const {
    return state_.get() + head * shape_.value_dim * shape_.key_dim;
  }
  std::size_t bytes() const;

 private:
  std::int64_t window_floats() const;
  DeltaWindow window(int side) const;

  DeltaShape shape_;
  AlignedFloats state_;       // [value_heads, value_dim, key_dim], to be multiplied by
  AlignedFloats scales_;      // [value_heads]
  AlignedFloats history_[2];  // [kernel - 1 + window rows, conv_channels]
  AlignedFloats window_[2];
  int side_ = 0;                // which of the two is the last segment's
  std::int64_t committed_ = 0;  // rows in `state_`
  std::int64_t kept_ = 0;       // rows of the window that count
};

// Blocks of 64 positions: keys [kv_heads, 64, head_dim], then values.
class KvCache {
 public:
  explicit KvCache(const AttentionShape& shape) : shape_(shape) {}

  // Makes room for `count` more entries; they are written through key() and value().
  void grow(std::int64_t count);
  void truncate(std::int64_t length);
  std::int64_t length() const { return length_; }
  float* key(std::int64_t position, std::int64_t kv_head) const;
  float* value(std::int64_t position, std::int64_t kv_head) const;
  const float* const* blocks() const { return pointers_.data(); }
  std::size_t bytes() const;

 private:
  std::int64_t half_floats() const { return shape_.kv_heads * kChunk * shape_.head_dim; }

  AttentionShape shape_;
  std::vector<AlignedFloats> blocks_;
  std::vector<const float*> pointers_;
  std::int64_t length_ = 0;
};

class CpuState final : public SequenceState {
 public:
  explicit CpuState(const StateShape& shape);

  std::int64_t position() const override { return position_; }
  void rewind(std::int64_t position) override;
  std::int64_t kv_length(int attention_layer) const override;
  void truncate_kv(int attention_layer, std::int64_t length) override;
  std::size_t bytes() const override;

  DeltaLayer& delta_layer(int layer);
  KvCache& kv(int layer);
  bool is_target(int attention_layer) const { return attention_layer < target_attention_layers_; }
  void advance(std::int64_t position) { position_ = position; }

 private:
  std::vector<DeltaLayer> delta_layers_;
  std::vector<KvCache> kv_;
  int target_attention_layers_ = 0;
  std::int64_t position_ = 0;
};

}  // namespace lockstep::ops::cpu
