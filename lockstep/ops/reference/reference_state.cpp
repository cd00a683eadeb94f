// SPDX-License-Identifier: Apache-2.0
#include "lockstep/ops/reference/reference_state.h"

#include "lockstep/base/check.h"

namespace lockstep::ops::reference {
namespace {

void cut(AttentionLayer& layer, std::int64_t length) {
  CHECK(length >= 0 && length <= layer.length);
  const auto size = static_cast<std::size_t>(length * layer.shape.kv_heads * layer.shape.head_dim);
  layer.keys.resize(size);
  layer.values.resize(size);
  layer.length = length;
}

void restore(DeltaLayer& layer, std::int64_t position) {
  if (position == layer.position) return;
  const std::int64_t begin = layer.position - static_cast<std::int64_t>(layer.window.size());
  CHECK_MSG(position >= begin && position < layer.position,
            "only rows of the last speculative window can be undone");
  const auto row = static_cast<std::size_t>(position - begin);
  layer.now = layer.window[row];
  layer.window.resize(row);
  layer.position = position;
}

}  // namespace

ReferenceState::ReferenceState(const StateShape& shape)
    : target_attention_layers_(shape.target_attention_layers) {
  for (const DeltaShape& s : shape.delta_layers) {
    DeltaLayer& layer = delta_layers_.emplace_back();
    layer.shape = s;
    layer.now.state.resize(static_cast<std::size_t>(s.value_heads * s.value_dim * s.key_dim));
    layer.now.scale.resize(static_cast<std::size_t>(s.value_heads), 1.0f);
    layer.now.conv.resize(static_cast<std::size_t>((s.conv_kernel - 1) * s.conv_channels()));
  }
  for (const AttentionShape& s : shape.attention_layers)
    attention_layers_.emplace_back().shape = s;
}

void ReferenceState::rewind(std::int64_t position) {
  CHECK(position >= 0 && position <= position_);
  for (DeltaLayer& layer : delta_layers_)
    restore(layer, position);
  for (int i = 0; i < target_attention_layers_; ++i)
    cut(attention_layer(i), position);
  position_ = position;
}

std::int64_t ReferenceState::kv_length(int attention_layer) const {
  return attention_layers_.at(static_cast<std::size_t>(attention_layer)).length;
}

void ReferenceState::truncate_kv(int layer, std::int64_t length) {
  CHECK(!is_target(layer));
  cut(attention_layer(layer), length);
}

std::size_t ReferenceState::bytes() const {
  std::size_t floats = 0;
  for (const DeltaLayer& layer : delta_layers_) {
    floats += (layer.now.state.size() + layer.now.conv.size()) * (1 + layer.window.size());
  }
  for (const AttentionLayer& layer : attention_layers_) {
    floats += layer.keys.size() + layer.values.size();
  }
  return floats * sizeof(float);
}

DeltaLayer& ReferenceState::delta_layer(int layer) {
  CHECK(layer >= 0 && static_cast<std::size_t>(layer) < delta_layers_.size());
  return delta_layers_[static_cast<std::size_t>(layer)];
}

AttentionLayer& ReferenceState::attention_layer(int layer) {
  CHECK(layer >= 0 && static_cast<std::size_t>(layer) < attention_layers_.size());
  return attention_layers_[static_cast<std::size_t>(layer)];
}

}  // namespace lockstep::ops::reference
