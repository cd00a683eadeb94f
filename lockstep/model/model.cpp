// SPDX-License-Identifier: Apache-2.0
#include "lockstep/model/model.h"

#include <cmath>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::model {

struct Model::Layer {
  spec::LayerKind kind = spec::LayerKind::kDelta;
  int state_layer = 0;  // index among the delta layers, or among the attention layers
  std::vector<float> input_norm, post_norm;
  std::unique_ptr<ops::Matrix> project;  // qkv | z | b | a, or q | k | v
  std::unique_ptr<ops::Matrix> mix_out;
  ops::DeltaWeights delta;
  ops::AttentionWeights attention;
  std::unique_ptr<ops::Matrix> router;  // experts, then the shared gate
  std::unique_ptr<ops::ExpertBank> gate, up, down;
  std::unique_ptr<ops::Matrix> shared_gate, shared_up, shared_down;
};

struct Model::Mtp {
  std::unique_ptr<ops::Matrix> fusion;
  std::unique_ptr<ops::Matrix> kv;  // k | v of the layer, for priming
  std::vector<float> norm_embedding, norm_hidden, norm;
  std::unique_ptr<Layer> layer;
};

namespace {

std::unique_ptr<ops::Matrix> concat(ops::Backend& backend,
                                    std::initializer_list<quant::MatrixView> parts) {
  return backend.prepare(std::span(parts.begin(), parts.size()));
}

ops::DeltaShape delta_shape(const spec::TextConfig& c) {
  return {.key_heads = c.delta_key_heads,
          .value_heads = c.delta_value_heads,
          .key_dim = c.delta_key_dim,
          .value_dim = c.delta_value_dim,
          .conv_kernel = c.conv_kernel};
}

ops::AttentionShape attention_shape(const spec::TextConfig& c) {
  return {.query_heads = c.query_heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .rotary_dim = c.rotary_dim};
}

}  // namespace

std::vector<float> rotary_inv_freq(const spec::TextConfig& config) {
  std::vector<float> table(static_cast<std::size_t>(config.rotary_dim / 2));
  for (std::size_t d = 0; d < table.size(); ++d) {
    const double exponent = -2.0 * static_cast<double>(d) / static_cast<double>(config.rotary_dim);
    table[d] = static_cast<float>(std::pow(config.rope_theta, exponent));
  }
  return table;
}

std::vector<std::uint8_t> rotary_axes(const spec::TextConfig& config) {
  std::vector<std::uint8_t> axes(static_cast<std::size_t>(config.rotary_dim / 2), 0);
  for (std::uint8_t axis = 1; axis <= 2; ++axis) {
    const auto end = static_cast<std::size_t>(3 * config.mrope_section[axis]);
    for (std::size_t d = axis; d < end && d < axes.size(); d += 3)
      axes[d] = axis;
  }
  return axes;
}

void append_text_segment(ops::Batch& batch, ops::Segment segment) {
  CHECK(segment.row_count > 0);
  segment.row_begin = batch.rows;
  for (std::int64_t r = 0; r < segment.row_count; ++r) {
    const auto position = static_cast<std::int32_t>(segment.position + r);
    batch.coordinates.insert(batch.coordinates.end(), 3, position);
  }
  batch.rows += segment.row_count;
  batch.segments.push_back(segment);
}

Model::Model(const spec::TextConfig& config, bool pre_norm, ops::Backend& backend)
    : config_(config), mtp_takes_pre_norm_(pre_norm), backend_(backend) {}

Model::~Model() = default;

std::unique_ptr<Model> Model::build(const spec::ModelConfig& config, spec::Weights weights,
                                    ops::Backend& backend) {
  auto model =
      std::unique_ptr<Model>(new Model(config.text, config.mtp_hidden_is_pre_norm, backend));
  model->embedding_ = concat(backend, {weights.embedding});
  model->head_ = concat(backend, {weights.head});
  model->final_norm_ = std::move(weights.final_norm);
  int delta_layers = 0;
  for (spec::LayerWeights& layer : weights.layers) {
    int& count =
        layer.kind == spec::LayerKind::kDelta ? delta_layers : model->target_attention_layers_;
    model->layers_.push_back(model->build_layer(std::move(layer), count));
    ++count;
  }
  if (weights.mtp) {
    spec::MtpWeights& mtp = *weights.mtp;
    model->mtp_ = std::make_unique<Mtp>();
    model->mtp_->fusion = concat(backend, {mtp.fc});
    model->mtp_->kv = concat(backend, {mtp.layer.attention.k, mtp.layer.attention.v});
    model->mtp_->norm_embedding = std::move(mtp.norm_embedding);
    model->mtp_->norm_hidden = std::move(mtp.norm_hidden);
    model->mtp_->norm = std::move(mtp.norm);
    model->mtp_->layer = model->build_layer(std::move(mtp.layer), model->mtp_layer());
  }
  return model;
}

std::unique_ptr<Model::Layer> Model::build_layer(spec::LayerWeights w, int state_layer) const {
  auto layer = std::make_unique<Layer>();
  const auto eps = static_cast<float>(config_.rms_eps);
  layer->kind = w.kind;
  layer->state_layer = state_layer;
  layer->input_norm = std::move(w.input_norm);
  layer->post_norm = std::move(w.post_norm);
  if (w.kind == spec::LayerKind::kDelta) {
    layer->project = concat(backend_, {w.delta.qkv, w.delta.z, w.delta.b, w.delta.a});
    layer->mix_out = concat(backend_, {w.delta.out});
    layer->delta = {.shape = delta_shape(config_),
                    .conv = std::move(w.delta.conv),
                    .a_log = std::move(w.delta.a_log),
                    .dt_bias = std::move(w.delta.dt_bias),
                    .norm = std::move(w.delta.norm),
                    .norm_eps = eps};
  } else {
    layer->project = concat(backend_, {w.attention.q, w.attention.k, w.attention.v});
    layer->mix_out = concat(backend_, {w.attention.o});
    layer->attention = {.shape = attention_shape(config_),
                        .q_norm = std::move(w.attention.q_norm),
                        .k_norm = std::move(w.attention.k_norm),
                        .inv_freq = rotary_inv_freq(config_),
                        .axis = rotary_axes(config_),
                        .norm_eps = eps};
  }
  layer->router = concat(backend_, {w.moe.router, w.moe.shared_gate});
  layer->gate = backend_.prepare_bank(w.moe.gate);
  layer->up = backend_.prepare_bank(w.moe.up);
  layer->down = backend_.prepare_bank(w.moe.down);
  layer->shared_gate = concat(backend_, {w.moe.shared_expert_gate});
  layer->shared_up = concat(backend_, {w.moe.shared_expert_up});
  layer->shared_down = concat(backend_, {w.moe.shared_expert_down});
  return layer;
}

std::unique_ptr<ops::SequenceState> Model::make_state() const {
  ops::StateShape shape;
  for (const auto& layer : layers_) {
    if (layer->kind == spec::LayerKind::kDelta) {
      shape.delta_layers.push_back(layer->delta.shape);
    } else {
      shape.attention_layers.push_back(layer->attention.shape);
    }
  }
  shape.target_attention_layers = target_attention_layers_;
  if (mtp_) shape.attention_layers.push_back(mtp_->layer->attention.shape);
  return backend_.make_state(shape);
}

ops::Tensor Model::run_mixer(const Layer& layer, const ops::Batch& batch,
                             const ops::Tensor& x) const {
  const auto eps = static_cast<float>(config_.rms_eps);
  ops::Tensor projected = backend_.scratch(x.rows, layer.project->rows());
  backend_.project(x, layer.input_norm, eps, *layer.project, projected);
  ops::Tensor mixed = backend_.scratch(x.rows, layer.mix_out->cols());
  if (layer.kind == spec::LayerKind::kDelta) {
    backend_.delta(batch, layer.state_layer, layer.delta, projected, mixed);
  } else {
    backend_.attend(batch, layer.state_layer, layer.attention, projected, mixed);
  }
  return mixed;
}

std::int64_t Model::run_experts(const Layer& layer, ops::Tensor x) const {
  const auto eps = static_cast<float>(config_.rms_eps);
  const ops::RouterOutput routed = backend_.route(x, layer.post_norm, eps, *layer.router,
                                                  static_cast<int>(config_.experts_per_token));
  const std::int64_t expert_union = backend_.expert_union();
  const ops::Tensor activations =
      backend_.experts_in(routed, *layer.gate, *layer.up, *layer.shared_gate, *layer.shared_up);
  backend_.experts_out(routed, activations, *layer.down, *layer.shared_down, x);
  return expert_union;
}

std::int64_t Model::run_layer(const Layer& layer, const ops::Batch& batch, ops::Tensor x,
                              const std::string& name, const Trace& trace) const {
  const ops::Tensor mixed = run_mixer(layer, batch, x);
  if (trace) {
    ops::Tensor output = backend_.scratch(x.rows, x.width);
    backend_.linear(mixed, *layer.mix_out, output);
    trace(name + ".mixer", output);
  }
  backend_.mix_out(mixed, *layer.mix_out, x);
  const std::int64_t expert_union = run_experts(layer, x);
  if (trace) trace(name, x);
  return expert_union;
}

Hidden Model::forward(const ops::Batch& batch, std::span<const std::int32_t> ids,
                      const Trace& trace) const {
  CHECK(static_cast<std::int64_t>(ids.size()) == batch.rows);
  ops::Tensor x = backend_.scratch(batch.rows, config_.hidden);
  backend_.embed(*embedding_, ids, x);
  if (trace) trace("embed", x);
  std::int64_t expert_union = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    expert_union += run_layer(*layers_[i], batch, x,
                              trace ? "layer." + std::to_string(i) : std::string(), trace);
  }
  ops::Tensor normed = backend_.scratch(batch.rows, config_.hidden);
  backend_.rms_norm(x, final_norm_, static_cast<float>(config_.rms_eps), normed);
  if (trace) trace("final_norm", normed);
  return {.normed = normed,
          .head_input = mtp_takes_pre_norm_ ? x : normed,
          .expert_union = static_cast<double>(expert_union) / static_cast<double>(layers_.size())};
}

ops::Tensor Model::logits(const ops::Tensor& normed) const {
  ops::Tensor out = backend_.scratch(normed.rows, config_.vocab_rows);
  backend_.linear(normed, *head_, out);
  return out;
}

ops::Tensor Model::fuse(std::span<const std::int32_t> next_ids, const ops::Tensor& hidden) const {
  CHECK(mtp_ != nullptr);
  CHECK(static_cast<std::int64_t>(next_ids.size()) == hidden.rows);
  ops::Tensor embedded = backend_.scratch(hidden.rows, config_.hidden);
  backend_.embed(*embedding_, next_ids, embedded);
  ops::Tensor pair = backend_.scratch(hidden.rows, 2 * config_.hidden);
  backend_.fuse(embedded, mtp_->norm_embedding, hidden, mtp_->norm_hidden,
                static_cast<float>(config_.rms_eps), pair);
  ops::Tensor x = backend_.scratch(hidden.rows, config_.hidden);
  backend_.linear(pair, *mtp_->fusion, x);
  return x;
}

void Model::mtp_prime(const ops::Batch& batch, std::span<const std::int32_t> next_ids,
                      const ops::Tensor& hidden) const {
  const ops::Tensor x = fuse(next_ids, hidden);
  ops::Tensor kv = backend_.scratch(x.rows, mtp_->kv->rows());
  backend_.project(x, mtp_->layer->input_norm, static_cast<float>(config_.rms_eps), *mtp_->kv, kv);
  backend_.append_kv(batch, mtp_->layer->state_layer, mtp_->layer->attention, kv);
}

ops::Tensor Model::mtp_forward(const ops::Batch& batch, std::span<const std::int32_t> next_ids,
                               const ops::Tensor& hidden) const {
  const ops::Tensor x = fuse(next_ids, hidden);
  run_layer(*mtp_->layer, batch, x, std::string(), nullptr);
  ops::Tensor out = backend_.scratch(x.rows, config_.hidden);
  backend_.rms_norm(x, mtp_->norm, static_cast<float>(config_.rms_eps), out);
  return out;
}

}  // namespace lockstep::model
