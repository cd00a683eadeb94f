// SPDX-License-Identifier: Apache-2.0
#include "lockstep/ops/cpu/cpu_state.h"

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/base/limits.h"

namespace lockstep::ops::cpu {
namespace {

constexpr std::int64_t kWindow = limits::kWindowRowsMax;

AlignedFloats filled(std::int64_t count, float value) {
  AlignedFloats data = aligned_floats(static_cast<std::size_t>(count));
  std::fill_n(data.get(), count, value);
  return data;
}

AlignedFloats zeros(std::int64_t count) {
  return filled(count, 0.0f);
}

std::int64_t state_floats(const DeltaShape& s) {
  return s.value_heads * s.value_dim * s.key_dim;
}

std::int64_t history_floats(const DeltaShape& s) {
  return (s.conv_kernel - 1 + kWindow) * s.conv_channels();
}

}  // namespace

DeltaLayer::DeltaLayer(const DeltaShape& shape)
    : shape_(shape),
      state_(zeros(state_floats(shape))),
      scales_(filled(shape.value_heads, 1.0f)),
      history_{zeros(history_floats(shape)), zeros(history_floats(shape))},
      window_{zeros(window_floats()), zeros(window_floats())} {}

std::int64_t DeltaLayer::window_floats() const {
  return kWindow * (shape_.qk_channels() + shape_.v_channels() + 2 * shape_.value_heads);
}

DeltaWindow DeltaLayer::window(int side) const {
  DeltaWindow w;
  w.k = window_[side].get();
  w.change = w.k + kWindow * shape_.qk_channels();
  w.factor = w.change + kWindow * shape_.v_channels();
  w.scale = w.factor + kWindow * shape_.value_heads;
  return w;
}

DeltaHeadArgs DeltaLayer::begin(const Segment& segment) const {
  CHECK(segment.position == position());
  DeltaHeadArgs args;
  args.segment = segment;
  args.scales = scales_.get();
  args.history = history_[side_].get() + kept_ * shape_.conv_channels();
  args.next_history = history_[1 - side_].get();
  args.pending = window(side_);
  args.pending_count = kept_;
  args.window = window(1 - side_);
  return args;
}

void DeltaLayer::end(const Segment& segment) {
  committed_ += kept_;
  kept_ = 0;
  if (segment.speculative) {
    kept_ = segment.row_count;
  } else {
    committed_ += segment.row_count;
  }
  side_ = 1 - side_;
}

void DeltaLayer::rewind(std::int64_t position) {
  CHECK_MSG(position >= committed_ && position <= committed_ + kept_,
            "only rows of the last speculative window can be undone");
  kept_ = position - committed_;
}

std::size_t DeltaLayer::bytes() const {
  return static_cast<std::size_t>(state_floats(shape_) + shape_.value_heads +
                                  2 * (history_floats(shape_) + window_floats())) *
         sizeof(float);
}

void KvCache::grow(std::int64_t count) {
  length_ += count;
  while (static_cast<std::int64_t>(blocks_.size()) * kChunk < length_) {
    blocks_.push_back(aligned_floats(static_cast<std::size_t>(2 * half_floats())));
    pointers_.push_back(blocks_.back().get());
  }
}

void KvCache::truncate(std::int64_t length) {
  CHECK(length >= 0 && length <= length_);
  length_ = length;
}

float* KvCache::key(std::int64_t position, std::int64_t kv_head) const {
  float* block = blocks_[static_cast<std::size_t>(position / kChunk)].get();
  return block + (kv_head * kChunk + position % kChunk) * shape_.head_dim;
}

float* KvCache::value(std::int64_t position, std::int64_t kv_head) const {
  return key(position, kv_head) + half_floats();
}

std::size_t KvCache::bytes() const {
  return blocks_.size() * static_cast<std::size_t>(2 * half_floats()) * sizeof(float);
}

CpuState::CpuState(const StateShape& shape)
    : target_attention_layers_(shape.target_attention_layers) {
  for (const DeltaShape& s : shape.delta_layers)
    delta_layers_.emplace_back(s);
  for (const AttentionShape& s : shape.attention_layers)
    kv_.emplace_back(s);
}

void CpuState::rewind(std::int64_t position) {
  CHECK(position >= 0 && position <= position_);
  for (DeltaLayer& layer : delta_layers_)
    layer.rewind(position);
  for (int i = 0; i < target_attention_layers_; ++i)
    kv(i).truncate(position);
  position_ = position;
}

std::int64_t CpuState::kv_length(int attention_layer) const {
  return kv_.at(static_cast<std::size_t>(attention_layer)).length();
}

void CpuState::truncate_kv(int attention_layer, std::int64_t length) {
  CHECK(!is_target(attention_layer));
  kv(attention_layer).truncate(length);
}

std::size_t CpuState::bytes() const {
  std::size_t sum = 0;
  for (const DeltaLayer& layer : delta_layers_)
    sum += layer.bytes();
  for (const KvCache& cache : kv_)
    sum += cache.bytes();
  return sum;
}

DeltaLayer& CpuState::delta_layer(int layer) {
  CHECK(layer >= 0 && static_cast<std::size_t>(layer) < delta_layers_.size());
  return delta_layers_[static_cast<std::size_t>(layer)];
}

KvCache& CpuState::kv(int layer) {
  CHECK(layer >= 0 && static_cast<std::size_t>(layer) < kv_.size());
  return kv_[static_cast<std::size_t>(layer)];
}

}  // namespace lockstep::ops::cpu
