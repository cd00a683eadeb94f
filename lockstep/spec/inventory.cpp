// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/inventory.h"

#include <filesystem>
#include <map>
#include <string>
#include <tuple>

namespace lockstep::spec {
namespace {

using io::Json;

struct Sum {
  std::int64_t tensors = 0;
  std::int64_t parameters = 0;
  std::size_t bytes = 0;

  void add(const StoredTensor& tensor) {
    ++tensors;
    parameters += tensor.expected.element_count();
    bytes += tensor.bytes();
  }
  void write(Json& json) const {
    json.set("tensors", tensors);
    json.set("parameters", parameters);
    json.set("bytes", bytes);
  }
};

Json text_architecture(const TextConfig& text) {
  std::int64_t attention_layers = 0;
  for (const LayerKind kind : text.layer_kinds)
    attention_layers += kind == LayerKind::kAttention;
  Json json;
  json.set("layers", text.layers);
  json.set("delta_layers", text.layers - attention_layers);
  json.set("attention_layers", attention_layers);
  json.set("hidden", text.hidden);
  json.set("query_heads", text.query_heads);
  json.set("kv_heads", text.kv_heads);
  json.set("head_dim", text.head_dim);
  json.set("rotary_dim", text.rotary_dim);
  json.set("rope_theta", text.rope_theta);
  json.set("delta_key_heads", text.delta_key_heads);
  json.set("delta_value_heads", text.delta_value_heads);
  json.set("delta_key_dim", text.delta_key_dim);
  json.set("delta_value_dim", text.delta_value_dim);
  json.set("conv_kernel", text.conv_kernel);
  json.set("experts", text.experts);
  json.set("experts_per_token", text.experts_per_token);
  json.set("expert_hidden", text.expert_hidden);
  json.set("shared_expert_hidden", text.shared_expert_hidden);
  json.set("vocab_rows", text.vocab_rows);
  json.set("context_tokens_max", text.context_tokens_max);
  json.set("tie_word_embeddings", text.tie_word_embeddings);
  return json;
}

Json vision_architecture(const Artifact& artifact) {
  const VisionConfig& vision = artifact.config().vision;
  Json json;
  json.set("depth", vision.depth);
  json.set("hidden", vision.hidden);
  json.set("heads", vision.heads);
  json.set("intermediate", vision.intermediate);
  json.set("patch", vision.patch);
  json.set("temporal_patch", vision.temporal_patch);
  json.set("merge", vision.merge);
  json.set("position_embeddings", vision.position_embeddings);
  const StoredTensor* patch = artifact.find("vision_tower.patch_embed.proj.weight");
  json.set("patch_embed_axes", patch != nullptr && patch->source_axes ? "source" : "mlx");
  return json;
}

// One entry per group, role and format.
Json role_sums(const Artifact& artifact) {
  std::map<std::tuple<Group, Role, std::string>, Sum> sums;
  for (const StoredTensor& tensor : artifact.tensors()) {
    sums[{tensor.expected.group, tensor.expected.row->role, tensor.format.name()}].add(tensor);
  }
  Json list = Json::array();
  for (const auto& [key, sum] : sums) {
    Json entry;
    entry.set("group", group_name(std::get<0>(key)));
    entry.set("role", role_name(std::get<1>(key)));
    entry.set("format", std::get<2>(key));
    sum.write(entry);
    list.push_back(std::move(entry));
  }
  return list;
}

Json totals(const Artifact& artifact) {
  std::map<Group, Sum> groups;
  Sum all;
  for (const StoredTensor& tensor : artifact.tensors()) {
    groups[tensor.expected.group].add(tensor);
    all.add(tensor);
  }
  Json json;
  all.write(json);
  for (const auto& [group, sum] : groups)
    sum.write(json.set(group_name(group), Json::object()));
  return json;
}

Json mtp_facts(const Artifact& artifact) {
  Json json;
  json.set("present", artifact.has_mtp());
  json.set("layout", mtp_layout_name(artifact.mtp_layout()));
  json.set("tensor_count", artifact.mtp_tensor_count());
  json.set("norm_convention", artifact.has_mtp()
                                  ? Json(norm_convention_name(artifact.mtp_norms().convention))
                                  : Json());
  std::map<std::string, Sum> formats;
  Sum all;
  for (const StoredTensor& tensor : artifact.tensors()) {
    if (tensor.expected.group != Group::kMtp) continue;
    formats[tensor.format.name()].add(tensor);
    all.add(tensor);
  }
  Json& list = json.set("formats", Json::array());
  for (const auto& [name, sum] : formats) {
    Json entry;
    entry.set("format", name);
    sum.write(entry);
    list.push_back(std::move(entry));
  }
  json.set("parameters", all.parameters);
  json.set("bytes", all.bytes);
  return json;
}

Json norm_facts(const NormDecision& decision) {
  std::int64_t raw = 0;
  Json votes = Json::array();
  for (const NormVote& vote : decision.votes) {
    raw += vote.vote == NormConvention::kRaw;
    Json entry;
    entry.set("tensor", vote.tensor);
    entry.set("mean", vote.mean);
    entry.set("threshold", vote.threshold);
    entry.set("vote", norm_convention_name(vote.vote));
    votes.push_back(std::move(entry));
  }
  Json json;
  json.set("convention", norm_convention_name(decision.convention));
  json.set("evidence", decision.evidence);
  json.set("gamma_votes", static_cast<std::int64_t>(decision.votes.size()) - raw);
  json.set("raw_votes", raw);
  json.set("votes", std::move(votes));
  return json;
}

Json token_facts(const ModelConfig& config) {
  const auto id = [](std::int64_t value) { return value < 0 ? Json() : Json(value); };
  Json json;
  json.set("eos", Json::Array(config.text.eos_ids.begin(), config.text.eos_ids.end()));
  json.set("image", id(config.image_token_id));
  json.set("video", id(config.video_token_id));
  json.set("vision_start", id(config.vision_start_token_id));
  json.set("vision_end", id(config.vision_end_token_id));
  return json;
}

Json file_list(const Artifact& artifact) {
  Json list = Json::array();
  for (const ArtifactFile& file : artifact.files()) {
    Json entry;
    entry.set("name", file.name);
    entry.set("bytes", file.bytes);
    entry.set("tensors", file.tensor_count);
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

Json inspect_artifact(const Artifact& artifact) {
  Json architecture = text_architecture(artifact.config().text);
  architecture.set("vision", artifact.has_vision() ? vision_architecture(artifact) : Json());
  Json norms;
  norms.set("target", norm_facts(artifact.target_norms()));
  norms.set("mtp", artifact.has_mtp() ? norm_facts(artifact.mtp_norms()) : Json());
  Json warnings = Json::array();
  for (const std::string& warning : artifact.warnings())
    warnings.push_back(warning);

  Json json;
  json.set("architecture", std::move(architecture));
  json.set("layout", target_layout_name(artifact.target_layout()));
  json.set("roles", role_sums(artifact));
  json.set("totals", totals(artifact));
  json.set("mtp", mtp_facts(artifact));
  json.set("norms", std::move(norms));
  json.set("tokens", token_facts(artifact.config()));
  json.set("files", file_list(artifact));
  json.set("warnings", std::move(warnings));
  return json;
}

Json list_tensors(const Artifact& artifact) {
  Json list = Json::array();
  for (const StoredTensor& tensor : artifact.tensors()) {
    const io::TensorView& weight = *tensor.parts[0].weight;
    const std::vector<std::int64_t>& shape = tensor.expected.shape;
    Json entry;
    entry.set("name", tensor.expected.name);
    entry.set("stored_name", weight.name);
    entry.set("group", group_name(tensor.expected.group));
    entry.set("role", role_name(tensor.expected.row->role));
    entry.set("dtype", dtype_name(weight.dtype));
    entry.set("shape", Json::Array(shape.begin(), shape.end()));
    entry.set("format", tensor.format.name());
    entry.set("bytes", tensor.bytes());
    entry.set("file", std::filesystem::path(weight.file).filename().string());
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace lockstep::spec
