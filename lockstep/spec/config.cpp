// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/config.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "lockstep/base/limits.h"
#include "lockstep/io/json.h"
#include "lockstep/spec/json_fields.h"
#include "lockstep/spec/quantization_block.h"

namespace lockstep::spec {
namespace {

using io::Json;
using Range = JsonFields::Range;

constexpr Range kWidth{.low = 1, .high = limits::kHiddenMax};
constexpr Range kHeads{.low = 1, .high = limits::kHeadsMax};
constexpr Range kHeadDim{.low = 1, .high = limits::kHeadDimMax};
constexpr Range kLayers{.low = 1, .high = limits::kLayersMax};
constexpr Range kTokenId{.low = 0, .high = limits::kVocabMax - 1};

// A feature that the family's code paths don't have must not be ignored when a file asks for it.
Status refuse_unless(const JsonFields& fields, const char* key, const Json& expected) {
  const Json* value = fields.find(key);
  if (value == nullptr || *value == expected) return {};
  return fields.error(ErrorCode::kUnsupported, key,
                      "is " + value->dump().substr(0, 60) + ", only " + expected.dump() +
                          " is supported for this family");
}

Status check_fixed_features(const JsonFields& fields) {
  LOCKSTEP_TRY_STATUS(refuse_unless(fields, "attn_output_gate", true));
  LOCKSTEP_TRY_STATUS(refuse_unless(fields, "attention_bias", false));
  LOCKSTEP_TRY_STATUS(refuse_unless(fields, "hidden_act", "silu"));
  LOCKSTEP_TRY_STATUS(refuse_unless(fields, "norm_topk_prob", true));
  LOCKSTEP_TRY_STATUS(refuse_unless(fields, "mlp_only_layers", Json::array()));
  return refuse_unless(fields, "decoder_sparse_step", 1);
}

Status check_divides(const JsonFields& fields, const char* key, std::int64_t value,
                     std::int64_t divisor, const char* divisor_key) {
  if (value % divisor == 0) return {};
  return fields.error(ErrorCode::kInconsistent, key,
                      "is " + std::to_string(value) + ", expected a multiple of '" + divisor_key +
                          "' = " + std::to_string(divisor));
}

Result<std::vector<LayerKind>> interval_kinds(std::int64_t layers, std::int64_t interval) {
  std::vector<LayerKind> kinds;
  for (std::int64_t i = 0; i < layers; ++i) {
    kinds.push_back((i + 1) % interval == 0 ? LayerKind::kAttention : LayerKind::kDelta);
  }
  return kinds;
}

// `layer_types` and `full_attention_interval` state the same thing; other readers trust the one
// or the other, so a file in which they differ means two models (trap T-25).
Result<std::vector<LayerKind>> read_layer_kinds(const JsonFields& fields, std::int64_t layers) {
  constexpr std::int64_t kDefaultInterval = 4;
  LOCKSTEP_TRY(const auto interval, fields.integer("full_attention_interval", kLayers));
  const Json* types = fields.find("layer_types");
  if (types == nullptr) return interval_kinds(layers, interval.value_or(kDefaultInterval));
  if (!types->is_array()) return fields.kind_error("layer_types", "a list", *types);
  if (static_cast<std::int64_t>(types->size()) != layers) {
    return fields.error(ErrorCode::kInconsistent, "layer_types",
                        "has " + std::to_string(types->size()) +
                            " entries, 'num_hidden_layers' is " + std::to_string(layers));
  }
  std::vector<LayerKind> kinds;
  for (const Json& type : types->as_array()) {
    const std::int64_t i = static_cast<std::int64_t>(kinds.size());
    const bool linear = type == Json("linear_attention");
    if (!linear && type != Json("full_attention")) {
      return fields.error(ErrorCode::kUnsupported, "layer_types",
                          "entry " + std::to_string(i) + " is " + type.dump().substr(0, 60) +
                              ", expected \"linear_attention\" or \"full_attention\"");
    }
    if (interval && ((i + 1) % *interval != 0) != linear) {
      return fields.error(
          ErrorCode::kInconsistent, "layer_types",
          "entry " + std::to_string(i) + " is " + type.dump() +
              ", which contradicts 'full_attention_interval' = " + std::to_string(*interval));
    }
    kinds.push_back(linear ? LayerKind::kDelta : LayerKind::kAttention);
  }
  return kinds;
}

Result<std::array<std::int64_t, 3>> read_mrope_section(const JsonFields& rope) {
  const Json* section = rope.find("mrope_section");
  if (section == nullptr) {
    return rope.error(ErrorCode::kFormat, "mrope_section", "is missing; three integers required");
  }
  std::array<std::int64_t, 3> parts{};
  const bool three = section->is_array() && section->size() == 3;
  if (!three) return rope.kind_error("mrope_section", "three integers", *section);
  for (std::size_t i = 0; i < 3; ++i) {
    const Json& part = section->as_array()[i];
    if (!part.is_integer() || part.as_int() < 0 || part.as_int() > limits::kHeadDimMax) {
      return rope.kind_error("mrope_section", "three integers", part);
    }
    parts[i] = part.as_int();
  }
  return parts;
}

// No default stands in for a missing block: the one in circulation has another theta (spec 1.1).
Status read_rope(const JsonFields& fields, const std::string& label, TextConfig& text) {
  LOCKSTEP_TRY(const Json* block, fields.required_object("rope_parameters"));
  const JsonFields rope(*block, label, "rope_parameters.");
  LOCKSTEP_TRY(auto type, rope.string("rope_type"));
  if (!type) {
    LOCKSTEP_TRY(type, rope.string("type"));
  }
  if (!type) return rope.error(ErrorCode::kFormat, "rope_type", "is missing; a string required");
  if (*type != "default") {
    return rope.error(ErrorCode::kUnsupported, "rope_type",
                      "is '" + type->substr(0, 60) + "', only 'default' is supported");
  }
  LOCKSTEP_TRY_STATUS(refuse_unless(rope, "mrope_interleaved", true));
  LOCKSTEP_TRY(text.rope_theta, rope.required_number("rope_theta"));
  if (!(text.rope_theta > 1) || !(text.rope_theta < 1e15)) {
    return rope.error(ErrorCode::kLimit, "rope_theta", "is not between 1 and 1e15");
  }
  LOCKSTEP_TRY(const double factor, rope.required_number("partial_rotary_factor"));
  if (!(factor > 0) || !(factor <= 1)) {
    return rope.error(ErrorCode::kLimit, "partial_rotary_factor", "is not in (0, 1]");
  }
  text.rotary_dim = static_cast<std::int64_t>(static_cast<double>(text.head_dim) * factor);
  if (text.rotary_dim < 2 || text.rotary_dim % 2 != 0) {
    return rope.error(ErrorCode::kInconsistent, "partial_rotary_factor",
                      "gives a rotary width of " + std::to_string(text.rotary_dim) +
                          ", expected an even number above 0");
  }
  LOCKSTEP_TRY(text.mrope_section, read_mrope_section(rope));
  const std::int64_t sum = text.mrope_section[0] + text.mrope_section[1] + text.mrope_section[2];
  if (2 * sum != text.rotary_dim) {
    return rope.error(ErrorCode::kInconsistent, "mrope_section",
                      "sums to " + std::to_string(sum) + ", expected half the rotary width of " +
                          std::to_string(text.rotary_dim));
  }
  return {};
}

Status read_attention(const JsonFields& fields, TextConfig& text) {
  LOCKSTEP_TRY(text.query_heads, fields.required_integer("num_attention_heads", kHeads));
  LOCKSTEP_TRY(text.kv_heads, fields.required_integer("num_key_value_heads", kHeads));
  LOCKSTEP_TRY(text.head_dim, fields.required_integer("head_dim", kHeadDim));
  return check_divides(fields, "num_attention_heads", text.query_heads, text.kv_heads,
                       "num_key_value_heads");
}

Status read_delta(const JsonFields& fields, TextConfig& text) {
  LOCKSTEP_TRY(text.conv_kernel,
               fields.required_integer("linear_conv_kernel_dim",
                                       {.low = 1, .high = limits::kConvKernelMax}));
  LOCKSTEP_TRY(text.delta_key_heads, fields.required_integer("linear_num_key_heads", kHeads));
  LOCKSTEP_TRY(text.delta_value_heads, fields.required_integer("linear_num_value_heads", kHeads));
  LOCKSTEP_TRY(text.delta_key_dim, fields.required_integer("linear_key_head_dim", kHeadDim));
  LOCKSTEP_TRY(text.delta_value_dim, fields.required_integer("linear_value_head_dim", kHeadDim));
  return check_divides(fields, "linear_num_value_heads", text.delta_value_heads,
                       text.delta_key_heads, "linear_num_key_heads");
}

Status read_experts(const JsonFields& fields, TextConfig& text) {
  LOCKSTEP_TRY(text.experts,
               fields.required_integer("num_experts", {.low = 1, .high = limits::kExpertsMax}));
  LOCKSTEP_TRY(text.experts_per_token,
               fields.required_integer("num_experts_per_tok", {.low = 1, .high = text.experts}));
  LOCKSTEP_TRY(text.expert_hidden, fields.required_integer("moe_intermediate_size", kWidth));
  LOCKSTEP_TRY(text.shared_expert_hidden,
               fields.required_integer("shared_expert_intermediate_size", kWidth));
  return {};
}

Result<TextConfig> read_text(const Json& json, const std::string& label,
                             const std::string& prefix) {
  const JsonFields fields(json, label, prefix);
  LOCKSTEP_TRY_STATUS(check_fixed_features(fields));
  TextConfig text;
  LOCKSTEP_TRY(text.hidden, fields.required_integer("hidden_size", kWidth));
  LOCKSTEP_TRY(text.layers, fields.required_integer("num_hidden_layers", kLayers));
  LOCKSTEP_TRY(text.layer_kinds, read_layer_kinds(fields, text.layers));
  LOCKSTEP_TRY_STATUS(read_attention(fields, text));
  LOCKSTEP_TRY_STATUS(read_rope(fields, label, text));
  LOCKSTEP_TRY_STATUS(read_delta(fields, text));
  LOCKSTEP_TRY_STATUS(read_experts(fields, text));
  LOCKSTEP_TRY(text.vocab_rows,
               fields.required_integer("vocab_size", {.low = 1, .high = limits::kVocabMax}));
  LOCKSTEP_TRY(text.context_tokens_max,
               fields.required_integer("max_position_embeddings",
                                       {.low = 1, .high = limits::kContextTokensMax}));
  LOCKSTEP_TRY(text.rms_eps, fields.required_number("rms_norm_eps"));
  if (!(text.rms_eps > 0) || !(text.rms_eps < 1)) {
    return fields.error(ErrorCode::kLimit, "rms_norm_eps", "is not between 0 and 1");
  }
  LOCKSTEP_TRY(text.eos_ids, fields.ids("eos_token_id"));
  return text;
}

Result<VisionConfig> read_vision(const Json& json, const std::string& label) {
  const JsonFields fields(json, label, "vision_config.");
  LOCKSTEP_TRY_STATUS(refuse_unless(fields, "hidden_act", "gelu_pytorch_tanh"));
  LOCKSTEP_TRY_STATUS(refuse_unless(fields, "deepstack_visual_indexes", Json::array()));
  constexpr Range kPatch{.low = 1, .high = limits::kVisionPatchMax};
  VisionConfig vision;
  LOCKSTEP_TRY(vision.depth, fields.required_integer("depth", kLayers));
  LOCKSTEP_TRY(vision.hidden, fields.required_integer("hidden_size", kWidth));
  LOCKSTEP_TRY(vision.heads, fields.required_integer("num_heads", kHeads));
  LOCKSTEP_TRY(vision.intermediate, fields.required_integer("intermediate_size", kWidth));
  LOCKSTEP_TRY(vision.in_channels, fields.required_integer("in_channels", {.low = 1, .high = 16}));
  LOCKSTEP_TRY(vision.patch, fields.required_integer("patch_size", kPatch));
  LOCKSTEP_TRY(vision.temporal_patch, fields.required_integer("temporal_patch_size", kPatch));
  LOCKSTEP_TRY(vision.merge, fields.required_integer("spatial_merge_size", {.low = 1, .high = 16}));
  LOCKSTEP_TRY(vision.out_hidden, fields.required_integer("out_hidden_size", kWidth));
  LOCKSTEP_TRY(vision.position_embeddings,
               fields.required_integer("num_position_embeddings",
                                       {.low = 1, .high = limits::kVisionPositionsMax}));
  LOCKSTEP_TRY_STATUS(
      check_divides(fields, "hidden_size", vision.hidden, vision.heads, "num_heads"));
  const auto side = std::llround(std::sqrt(static_cast<double>(vision.position_embeddings)));
  if (side * side != vision.position_embeddings) {
    return fields.error(
        ErrorCode::kInconsistent, "num_position_embeddings",
        "is " + std::to_string(vision.position_embeddings) + ", expected a square number");
  }
  return vision;
}

// Two spellings of one id are in circulation; absent ids are missed only by whoever needs them.
Result<std::int64_t> read_special_id(const JsonFields& fields, const char* key,
                                     const char* other_key) {
  LOCKSTEP_TRY(auto id, fields.integer(key, kTokenId));
  if (other_key == nullptr) return id.value_or(-1);
  LOCKSTEP_TRY(const auto other, fields.integer(other_key, kTokenId));
  if (id && other && *id != *other) {
    return fields.error(
        ErrorCode::kInconsistent, key,
        "is " + std::to_string(*id) + ", but '" + other_key + "' is " + std::to_string(*other));
  }
  return id ? *id : other.value_or(-1);
}

Status read_special_ids(const JsonFields& top, ModelConfig& config) {
  LOCKSTEP_TRY(config.image_token_id, read_special_id(top, "image_token_id", "image_token_index"));
  LOCKSTEP_TRY(config.video_token_id, read_special_id(top, "video_token_id", "video_token_index"));
  LOCKSTEP_TRY(config.vision_start_token_id,
               read_special_id(top, "vision_start_token_id", nullptr));
  LOCKSTEP_TRY(config.vision_end_token_id, read_special_id(top, "vision_end_token_id", nullptr));
  LOCKSTEP_TRY(const auto eos, top.ids("eos_token_id"));
  for (const std::int64_t id : eos) {
    auto& ids = config.text.eos_ids;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return {};
}

// Keys that some writers put at the top and others into text_config.
Status read_shared_keys(const JsonFields& top, const JsonFields& text, ModelConfig& config) {
  LOCKSTEP_TRY(const auto tie_top, top.boolean("tie_word_embeddings"));
  LOCKSTEP_TRY(const auto tie_text, text.boolean("tie_word_embeddings"));
  if (tie_top && tie_text && *tie_top != *tie_text) {
    return top.error(ErrorCode::kInconsistent, "tie_word_embeddings",
                     "differs between the top level and 'text_config'; make them agree");
  }
  config.text.tie_word_embeddings = tie_top.value_or(tie_text.value_or(false));
  for (const JsonFields* fields : {&text, &top}) {
    for (const char* key : {"mtp_num_hidden_layers", "num_nextn_predict_layers"}) {
      LOCKSTEP_TRY(const auto layers,
                   fields->integer(key, {.low = 0, .high = limits::kMtpLayersMax}));
      if (layers)
        config.text.mtp_layers = std::max(config.text.mtp_layers, static_cast<int>(*layers));
    }
    LOCKSTEP_TRY(const auto mode, fields->string("mtp_hidden_state_mode"));
    if (mode && *mode != "post_norm" && *mode != "pre_norm") {
      return fields->error(ErrorCode::kUnsupported, "mtp_hidden_state_mode",
                           "is '" + mode->substr(0, 60) + "', expected post_norm or pre_norm");
    }
    if (mode) config.mtp_hidden_is_pre_norm = *mode == "pre_norm";
  }
  return {};
}

Status check_model_type(const JsonFields& fields, std::initializer_list<const char*> known,
                        bool required) {
  LOCKSTEP_TRY(const auto type, fields.string("model_type"));
  if (!type && !required) return {};
  if (!type) return fields.error(ErrorCode::kFormat, "model_type", "is missing");
  std::string list;
  for (const char* name : known) {
    if (*type == name) return {};
    list += std::string(list.empty() ? "" : ", ") + name;
  }
  return fields.error(ErrorCode::kUnsupported, "model_type",
                      "is '" + type->substr(0, 60) + "', this build runs " + list);
}

Status read_quantization(const Json& json, const std::string& label, ModelConfig& config) {
  const Json* block = json.find("quantization");
  const Json* copy = json.find("quantization_config");
  if (block != nullptr && copy != nullptr && *block != *copy) {
    config.warnings.push_back(
        "config.json: 'quantization' and 'quantization_config' differ; the first counts");
  }
  if (block == nullptr) block = copy;
  if (block != nullptr) {
    LOCKSTEP_TRY(config.quantization, parse_quantization(*block, label));
  }
  if (const Json* mtp = json.find("mtplx_mtp_quantization")) {
    LOCKSTEP_TRY(config.mtp_quantization, parse_quantization(*mtp, label));
  }
  return {};
}

}  // namespace

Result<ModelConfig> parse_config(std::string_view text, const std::string& label) {
  LOCKSTEP_TRY(const Json json, io::parse_json(text, label));
  if (!json.is_object()) {
    return Error{ErrorCode::kFormat, std::string("is ") + json.kind_name() + ", expected an object",
                 label};
  }
  const JsonFields top(json, label);
  LOCKSTEP_TRY_STATUS(check_model_type(top, {"qwen3_5_moe", "qwen3_5_moe_text"}, true));
  const bool text_only =
      *json.find("model_type") == Json("qwen3_5_moe_text") && top.find("text_config") == nullptr;
  const Json* text_json = &json;
  if (!text_only) {
    LOCKSTEP_TRY(text_json, top.required_object("text_config"));
  }
  const std::string prefix = text_only ? "" : "text_config.";
  const JsonFields text_fields(*text_json, label, prefix);
  LOCKSTEP_TRY_STATUS(check_model_type(text_fields, {"qwen3_5_moe_text", "qwen3_5_moe"}, false));

  ModelConfig config;
  LOCKSTEP_TRY(config.text, read_text(*text_json, label, prefix));
  if (top.find("vision_config") != nullptr) {
    LOCKSTEP_TRY(const Json* vision, top.required_object("vision_config"));
    LOCKSTEP_TRY_STATUS(check_model_type(
        JsonFields(*vision, label, "vision_config."),
        {"qwen3_5_moe", "qwen3_5_moe_vision", "qwen3_5", "qwen3_5_vision", "qwen3_vl"}, false));
    LOCKSTEP_TRY(config.vision, read_vision(*vision, label));
    config.has_vision = true;
    if (config.vision.out_hidden != config.text.hidden) {
      return top.error(ErrorCode::kInconsistent, "vision_config.out_hidden_size",
                       "is " + std::to_string(config.vision.out_hidden) +
                           ", the text model's hidden size is " +
                           std::to_string(config.text.hidden));
    }
  }
  LOCKSTEP_TRY_STATUS(read_special_ids(top, config));
  LOCKSTEP_TRY_STATUS(read_shared_keys(top, text_fields, config));
  LOCKSTEP_TRY_STATUS(read_quantization(json, label, config));
  return config;
}

Result<ModelConfig> load_config(const std::string& path) {
  LOCKSTEP_TRY(const std::string text, io::read_file(path, limits::kJsonFileBytesMax));
  return parse_config(text, path);
}

}  // namespace lockstep::spec
