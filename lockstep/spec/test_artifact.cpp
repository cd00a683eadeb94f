// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/test_artifact.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/philox.h"
#include "lockstep/io/json.h"
#include "lockstep/quant/codec.h"
#include "lockstep/quant/quantize.h"

namespace lockstep::spec {
namespace {

namespace fs = std::filesystem;

// Values of a tensor in MLX axes, and the convention its group's gains are in.
struct LogicalTensor {
  std::vector<float> values;
  NormConvention norms = NormConvention::kRaw;
};
using ValueSource = std::function<std::optional<LogicalTensor>(const ExpectedTensor&)>;

// [O, A, B] <-> [O, B, A], both axes possibly merged ones.
std::vector<float> swap_axes(const std::vector<float>& values, std::int64_t outer, std::int64_t a,
                             std::int64_t b) {
  std::vector<float> swapped(values.size());
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < a; ++i) {
      for (std::int64_t j = 0; j < b; ++j) {
        swapped[static_cast<std::size_t>((o * b + j) * a + i)] =
            values[static_cast<std::size_t>((o * a + i) * b + j)];
      }
    }
  }
  return swapped;
}

class Layouter {
 public:
  Layouter(const ModelConfig& config, const TestRecipe& recipe)
      : config_(config), recipe_(recipe) {}

  Status add_all(const ValueSource& source) {
    for (const ExpectedTensor& tensor : expected_tensors(config_)) {
      if (tensor.group == Group::kMtp && recipe_.mtp_layout == MtpLayout::kNone) continue;
      if (tensor.row->role == Role::kHead && config_.text.tie_word_embeddings) continue;
      std::optional<LogicalTensor> logical = source(tensor);
      if (logical) LOCKSTEP_TRY_STATUS(add(tensor, std::move(*logical)));
    }
    return {};
  }

  std::vector<io::TensorData> target;
  std::vector<io::TensorData> head;
  io::Json overrides = io::Json::object();  // module path -> triple

 private:
  ExpertSpelling spelling(const ExpectedTensor& tensor) const {
    return tensor.group == Group::kMtp ? recipe_.mtp_experts : recipe_.experts;
  }

  Status add(const ExpectedTensor& tensor, LogicalTensor logical) {
    if (tensor.row->gain != Gain::kNo) convert_gains(tensor, logical);
    if (tensor.row->role == Role::kExpert && spelling(tensor) != ExpertSpelling::kSwitch) {
      return spelling(tensor) == ExpertSpelling::kFused ? add_fused(tensor, logical.values)
                                                        : add_split(tensor, logical.values);
    }
    std::vector<std::int64_t> shape = tensor.shape;
    if (recipe_.layout == TargetLayout::kSource) {
      if (tensor.row->transform == Transform::kMoveConvAxis) shape = {shape[0], 1, shape[1]};
      if (tensor.row->transform == Transform::kMovePatchAxis) {
        logical.values =
            swap_axes(logical.values, shape[0], shape[1] * shape[2] * shape[3], shape[4]);
        shape = {shape[0], shape[4], shape[1], shape[2], shape[3]};
      }
    }
    const bool source_names = recipe_.layout == TargetLayout::kSource;
    return emit(tensor, source_names ? tensor.source_name() : tensor.name, shape, logical.values);
  }

  void convert_gains(const ExpectedTensor& tensor, LogicalTensor& logical) const {
    const NormConvention wanted = tensor.group == Group::kMtp ? recipe_.mtp_norms : recipe_.norms;
    if (wanted == logical.norms) return;
    const float shift = wanted == NormConvention::kGamma ? 1.0f : -1.0f;
    for (float& value : logical.values)
      value += shift;
  }

  // Gate rows and up rows of each expert follow each other in one tensor.
  Status add_fused(const ExpectedTensor& tensor, std::vector<float>& values) {
    const std::string name = recipe_.layout == TargetLayout::kSource || tensor.group == Group::kMtp
                                 ? tensor.source_name()
                                 : tensor.fused_name();
    if (tensor.row->transform == Transform::kStackExperts) {
      return emit(tensor, name, tensor.shape, values);
    }
    if (tensor.row->transform == Transform::kFirstRows) {
      gate_rows_ = std::move(values);
      return {};
    }
    const auto expert_size = static_cast<std::ptrdiff_t>(tensor.shape[1] * tensor.shape[2]);
    std::vector<float> fused;
    for (std::ptrdiff_t e = 0; e < tensor.shape[0]; ++e) {
      for (const std::vector<float>* half : {&gate_rows_, &values}) {
        fused.insert(fused.end(), half->begin() + e * expert_size,
                     half->begin() + (e + 1) * expert_size);
      }
    }
    return emit(tensor, name, {tensor.shape[0], 2 * tensor.shape[1], tensor.shape[2]}, fused);
  }

  Status add_split(const ExpectedTensor& tensor, const std::vector<float>& values) {
    const auto expert_size = static_cast<std::ptrdiff_t>(tensor.shape[1] * tensor.shape[2]);
    for (std::ptrdiff_t e = 0; e < tensor.shape[0]; ++e) {
      const std::string name = recipe_.layout == TargetLayout::kSource ? tensor.source_split_name(e)
                                                                       : tensor.split_name(e);
      LOCKSTEP_TRY_STATUS(
          emit(tensor, name, {tensor.shape[1], tensor.shape[2]},
               {values.begin() + e * expert_size, values.begin() + (e + 1) * expert_size}));
    }
    return {};
  }

  quant::Format format_of(const ExpectedTensor& tensor) const {
    const auto& formats = tensor.group == Group::kMtp ? recipe_.mtp : recipe_.target;
    const auto found = formats.find(tensor.row->role);
    if (tensor.row->quantizable() && found != formats.end() && found->second.quantized() &&
        tensor.shape.back() % found->second.group == 0) {
      return found->second;
    }
    const bool a_log = tensor.name.ends_with(".A_log");
    return quant::float_format(a_log ? recipe_.a_log_type : recipe_.float_type);
  }

  std::string stored_name(const ExpectedTensor& tensor, const std::string& name) const {
    if (tensor.group != Group::kMtp) return name;
    const std::string bare = name.substr(std::string("mtp.").size());
    switch (recipe_.mtp_layout) {
      case MtpLayout::kNested:
        return "language_model.mtp." + bare;
      case MtpLayout::kModel:
        return "model.mtp." + bare;
      case MtpLayout::kModelNested:
        return "model.language_model.mtp." + bare;
      case MtpLayout::kDrafter:
        return bare;
      default:
        return name;
    }
  }

  Status emit(const ExpectedTensor& tensor, const std::string& name,
              const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
    const quant::Format format = format_of(tensor);
    const std::int64_t cols = shape.back();
    const auto rows = static_cast<std::int64_t>(values.size()) / cols;
    LOCKSTEP_TRY(quant::QuantizedMatrix matrix,
                 quant::quantize_matrix(values.data(), rows, cols, format, {}));
    const std::string stored = stored_name(tensor, name);
    const DType word = format.quantized() ? DType::kU32 : format.float_type;
    const auto axes = [&](std::int64_t last) {
      std::vector<std::int64_t> result = shape;
      result.back() = last;
      return result;
    };
    const auto words =
        static_cast<std::int64_t>(quant::row_bytes(format, cols) / dtype_bytes(word));
    push(tensor, {stored, word, axes(words), std::move(matrix.codes)});
    if (!format.quantized()) return {};

    std::string module = stored;
    if (module.ends_with(".weight")) module.resize(module.size() - std::strlen(".weight"));
    const DType scale = format.has_biases() ? format.float_type : DType::kU8;
    const std::int64_t groups = cols / format.group;
    push(tensor, {module + ".scales", scale, axes(groups), std::move(matrix.scales)});
    if (format.has_biases()) {
      push(tensor, {module + ".biases", scale, axes(groups), std::move(matrix.biases)});
    }
    overrides.as_object().emplace_back(module, triple(format));
    return {};
  }

  static io::Json triple(const quant::Format& format) {
    io::Json json;
    json.set("group_size", format.group);
    json.set("bits", format.bits);
    constexpr const char* kModes[] = {"", "affine", "mxfp4", "mxfp8", "nvfp4"};
    json.set("mode", kModes[static_cast<std::size_t>(format.kind)]);
    return json;
  }

  void push(const ExpectedTensor& tensor, io::TensorData data) {
    if (recipe_.omit.contains(data.name)) return;
    if (recipe_.edit) recipe_.edit(data);
    const bool apart =
        recipe_.mtp_layout == MtpLayout::kSideFile || recipe_.mtp_layout == MtpLayout::kDrafter;
    (tensor.group == Group::kMtp && apart ? head : target).push_back(std::move(data));
  }

  const ModelConfig& config_;
  const TestRecipe& recipe_;
  std::vector<float> gate_rows_;
};

Status write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return Error{ErrorCode::kIo, "can't be written", path.string()};
  return {};
}

Status make_folder(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (code) return Error{ErrorCode::kIo, "can't be created: " + code.message(), path.string()};
  return {};
}

Status write_shards(const fs::path& dir, const std::vector<io::TensorData>& tensors,
                    const TestRecipe& recipe) {
  const io::Metadata metadata = {{"format", recipe.layout == TargetLayout::kSource ? "pt" : "mlx"}};
  const auto count = static_cast<std::size_t>(recipe.shard_count);
  io::Json::Object weight_map;
  for (std::size_t i = 0; i < count; ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, count);
    const std::string file = count == 1 ? "model.safetensors" : name;
    const std::size_t begin = tensors.size() * i / count;
    const std::size_t end = tensors.size() * (i + 1) / count;
    const auto part = std::span(tensors).subspan(begin, end - begin);
    LOCKSTEP_TRY_STATUS(io::write_safetensors((dir / file).string(), part, metadata));
    for (const io::TensorData& tensor : part)
      weight_map.emplace_back(tensor.name, file);
  }
  if (!recipe.write_index) return {};
  io::Json index;
  index.set("metadata", io::Json::object()).set("total_size", 0);
  index.set("weight_map", std::move(weight_map));
  return write_text(dir / "model.safetensors.index.json", index.dump(2));
}

Status write_head(const fs::path& dir, const Layouter& layouter, const TestRecipe& recipe) {
  if (recipe.mtp_layout == MtpLayout::kSideFile) {
    const fs::path path = dir / recipe.side_file;
    LOCKSTEP_TRY_STATUS(make_folder(path.parent_path()));
    if (!recipe.manifest.empty()) {
      LOCKSTEP_TRY_STATUS(write_text(path.parent_path() / "manifest.json", recipe.manifest));
    }
    return io::write_safetensors(path.string(), layouter.head, {{"format", "mlx"}});
  }
  if (recipe.mtp_layout != MtpLayout::kDrafter) return {};
  const fs::path folder =
      recipe.drafter_dir.empty() ? dir / "drafter" : fs::path(recipe.drafter_dir);
  LOCKSTEP_TRY_STATUS(make_folder(folder));
  LOCKSTEP_TRY_STATUS(
      write_text(folder / "config.json", R"({"model_type": "qwen3_5_mtp", "block_size": 3})"));
  return io::write_safetensors((folder / "model.safetensors").string(), layouter.head,
                               {{"format", "mlx"}});
}

Status write_model(const fs::path& dir, io::Json config_json, const ModelConfig& config,
                   const TestRecipe& recipe, const ValueSource& source) {
  CHECK(recipe.shard_count >= 1);
  LOCKSTEP_TRY_STATUS(make_folder(dir));
  Layouter layouter(config, recipe);
  LOCKSTEP_TRY_STATUS(layouter.add_all(source));
  if (recipe.write_quantization && layouter.overrides.size() > 0) {
    // The first module's triple is the global one; every module is listed, which MLX accepts.
    io::Json block = layouter.overrides.as_object()[0].second;
    for (const auto& [path, triple] : layouter.overrides.as_object()) {
      block.as_object().emplace_back(path, triple);
    }
    config_json.set("quantization", block);
    config_json.set("quantization_config", std::move(block));
  }
  LOCKSTEP_TRY_STATUS(write_text(dir / "config.json", config_json.dump(2)));
  LOCKSTEP_TRY_STATUS(write_shards(dir, layouter.target, recipe));
  return write_head(dir, layouter, recipe);
}

// --- random models -------------------------------------------------------------------------

struct Geometry {
  const char* preset;
  int hidden, layers, interval;
  int query_heads, kv_heads, head_dim;
  double rotary_factor;
  int mrope[3];
  int key_heads, value_heads, key_dim, value_dim;
  int experts, experts_per_token, expert_hidden, shared_hidden, vocab;
};
constexpr Geometry kGeometries[] = {
    {"tiny-a", 96, 5, 2, 3, 1, 32, 0.5, {3, 3, 2}, 3, 6, 32, 48, 7, 3, 32, 64, 131},
    {"tiny-b", 128, 4, 4, 4, 2, 64, 0.25, {4, 2, 2}, 2, 4, 64, 32, 8, 2, 64, 64, 259},
};

io::Json rope_json(const Geometry& geometry) {
  io::Json rope;
  rope.set("rope_type", "default");
  rope.set("rope_theta", 10000000);
  rope.set("partial_rotary_factor", geometry.rotary_factor);
  rope.set("mrope_interleaved", true);
  rope.set("mrope_section", io::Json::Array(std::begin(geometry.mrope), std::end(geometry.mrope)));
  return rope;
}

io::Json text_json(const Geometry& geometry) {
  io::Json text;
  text.set("model_type", "qwen3_5_moe_text");
  text.set("hidden_size", geometry.hidden);
  text.set("num_hidden_layers", geometry.layers);
  text.set("full_attention_interval", geometry.interval);
  text.set("num_attention_heads", geometry.query_heads);
  text.set("num_key_value_heads", geometry.kv_heads);
  text.set("head_dim", geometry.head_dim);
  text.set("linear_conv_kernel_dim", 4);
  text.set("linear_num_key_heads", geometry.key_heads);
  text.set("linear_num_value_heads", geometry.value_heads);
  text.set("linear_key_head_dim", geometry.key_dim);
  text.set("linear_value_head_dim", geometry.value_dim);
  text.set("num_experts", geometry.experts);
  text.set("num_experts_per_tok", geometry.experts_per_token);
  text.set("moe_intermediate_size", geometry.expert_hidden);
  text.set("shared_expert_intermediate_size", geometry.shared_hidden);
  text.set("vocab_size", geometry.vocab);
  text.set("max_position_embeddings", 8192);
  text.set("rms_norm_eps", 1e-6);
  text.set("eos_token_id", 1);
  text.set("mtp_num_hidden_layers", 1);
  text.set("rope_parameters", rope_json(geometry));
  return text;
}

io::Json vision_json(const Geometry& geometry) {
  io::Json vision;
  vision.set("depth", 2);
  vision.set("hidden_size", 32);
  vision.set("num_heads", 2);
  vision.set("intermediate_size", 48);
  vision.set("in_channels", 3);
  vision.set("patch_size", 4);
  vision.set("temporal_patch_size", 2);
  vision.set("spatial_merge_size", 2);
  vision.set("out_hidden_size", geometry.hidden);
  vision.set("num_position_embeddings", 16);
  vision.set("deepstack_visual_indexes", io::Json::array());
  return vision;
}

std::uint64_t hash(const std::string& text) {  // FNV-1a
  std::uint64_t value = 0xcbf29ce484222325u;
  for (const char c : text)
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return value;
}

// Near-normal numbers of variance 1: four uniforms, so that no library function decides bits.
std::vector<float> random_values(const std::string& name, std::uint64_t seed, std::size_t count) {
  const std::uint64_t key = hash(name) ^ (seed * 0x9e3779b97f4a7c15u);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits =
        philox4x32({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0},
                   {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
    float sum = -2.0f;
    for (const std::uint32_t word : bits)
      sum += uniform_open(word);
    values[i] = sum * 1.7320508f;
  }
  return values;
}

// Scales that keep activations near one and routers and gates decided.
LogicalTensor random_tensor(const ExpectedTensor& tensor, std::uint64_t seed) {
  LogicalTensor logical;
  logical.values =
      random_values(tensor.name, seed, static_cast<std::size_t>(tensor.element_count()));
  float scale = 0.1f;
  float offset = 0.0f;
  if (tensor.name.ends_with("linear_attn.norm.weight")) offset = 1.0f;
  if (tensor.name.ends_with(".A_log")) offset = 1.0f, scale = 0.5f;
  if (tensor.name.ends_with(".dt_bias")) offset = -2.0f, scale = 1.0f;
  if (tensor.name.ends_with("conv1d.weight")) scale = 0.5f;
  if (tensor.row->role == Role::kEmbedding) {
    scale = 1.0f;
  } else if (tensor.row->quantizable()) {
    scale = (tensor.row->role == Role::kRouter ? 3.0f : 1.5f) /
            std::sqrt(static_cast<float>(tensor.shape.back()));
  }
  for (float& value : logical.values)
    value = value * scale + offset;
  return logical;
}

// --- existing models -----------------------------------------------------------------------

LogicalTensor stored_values(const Artifact& artifact, const StoredTensor& stored) {
  const ExpectedTensor& expected = stored.expected;
  LogicalTensor logical;
  logical.norms = expected.group == Group::kMtp ? artifact.mtp_norms().convention
                                                : artifact.target_norms().convention;
  const std::size_t rank = expected.shape.size();
  if (expected.row->quantizable()) {
    const std::int64_t experts = rank == 3 ? expected.shape[0] : 1;
    logical.values.resize(static_cast<std::size_t>(expected.element_count()));
    float* out = logical.values.data();
    for (std::int64_t e = 0; e < experts; ++e) {
      const quant::MatrixView matrix = stored.matrix(e);
      for (std::int64_t row = 0; row < matrix.rows; ++row, out += matrix.cols) {
        quant::dequantize_row(matrix, row, out);
      }
    }
    return logical;
  }
  logical.values = stored.values();
  if (stored.source_axes && expected.row->transform == Transform::kMovePatchAxis) {
    const auto& s = expected.shape;
    logical.values = swap_axes(logical.values, s[0], s[4], s[1] * s[2] * s[3]);
  }
  return logical;
}

Status copy_text_files(const fs::path& from, const fs::path& to) {
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(from, code)) {
    const std::string name = entry.path().filename().string();
    const std::string kind = entry.path().extension().string();
    const bool text = kind == ".json" || kind == ".jinja" || kind == ".txt";
    if (!text || name == "config.json" || name == "model.safetensors.index.json") continue;
    // Byte by byte, since copy_file keeps a read-only source's permissions.
    LOCKSTEP_TRY(const std::string content,
                 io::read_file(entry.path().string(), std::size_t{1} << 30));
    LOCKSTEP_TRY_STATUS(write_text(to / name, content));
  }
  if (code) return Error{ErrorCode::kIo, "can't be listed: " + code.message(), from.string()};
  return {};
}

std::map<Role, quant::Format> all_roles(const quant::Format& format) {
  std::map<Role, quant::Format> formats;
  for (const Role role :
       {Role::kEmbedding, Role::kHead, Role::kMixer, Role::kRouter, Role::kSharedGate,
        Role::kExpert, Role::kSharedExpert, Role::kMtpFusion}) {
    formats.emplace(role, format);
  }
  return formats;
}

void leave_routers_float(std::map<Role, quant::Format>& formats) {
  formats.erase(Role::kRouter);
  formats.erase(Role::kSharedGate);
}

}  // namespace

TestFolder::TestFolder() : path_((fs::temp_directory_path() / "lockstep-XXXXXX").string()) {
  CHECK_MSG(::mkdtemp(path_.data()) != nullptr, path_.c_str());
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

TestRecipe test_recipe(const std::string& name, int group) {
  TestRecipe recipe;
  if (name == "mlx") return recipe;
  if (name == "source" || name == "source-split") {
    recipe.layout = TargetLayout::kSource;
    recipe.experts = name == "source" ? ExpertSpelling::kFused : ExpertSpelling::kSplit;
    recipe.mtp_experts = recipe.experts;
    recipe.norms = recipe.mtp_norms = NormConvention::kRaw;
    return recipe;
  }
  if (name == "mxfp4") {
    recipe.target = recipe.mtp = all_roles(quant::mxfp4());
    leave_routers_float(recipe.target);
    leave_routers_float(recipe.mtp);
    recipe.mtp_norms = NormConvention::kRaw;
    return recipe;
  }
  if (name == "6bit") {
    recipe.target = all_roles(quant::affine(8, group));
    recipe.target[Role::kExpert] = quant::affine(6, group);
    recipe.mtp = {{Role::kMixer, quant::affine(8, group)},
                  {Role::kMtpFusion, quant::affine(8, group)},
                  {Role::kExpert, quant::affine(6, group)}};
    return recipe;
  }
  recipe.target = all_roles(quant::affine(4, group));
  recipe.mtp = recipe.target;
  if (name == "w4") {
    recipe.target[Role::kRouter] = recipe.target[Role::kSharedGate] = quant::affine(8, group);
    recipe.mtp = {{Role::kMixer, quant::mxfp8()},
                  {Role::kExpert, quant::mxfp8()},
                  {Role::kSharedExpert, quant::mxfp8()}};
    return recipe;
  }
  if (name == "head-42") {
    leave_routers_float(recipe.mtp);
    return recipe;
  }
  CHECK_MSG(name == "w4-all", name.c_str());
  return recipe;
}

std::string test_config(const TestArtifactOptions& options) {
  for (const Geometry& geometry : kGeometries) {
    if (options.preset != geometry.preset) continue;
    io::Json config;
    config.set("model_type", "qwen3_5_moe");
    config.set("tie_word_embeddings", options.tied);
    config.set("text_config", text_json(geometry));
    if (options.vision) config.set("vision_config", vision_json(geometry));
    return config.dump(2);
  }
  CHECK_MSG(false, options.preset.c_str());
  return {};
}

Status write_test_artifact(const std::string& dir, const TestArtifactOptions& options) {
  const std::string text = test_config(options);
  LOCKSTEP_TRY(io::Json json, io::parse_json(text, "test config"));
  LOCKSTEP_TRY(const ModelConfig config, parse_config(text, "test config"));
  return write_model(dir, std::move(json), config, options.recipe,
                     [&](const ExpectedTensor& tensor) {
                       return std::optional(random_tensor(tensor, options.seed));
                     });
}

Status write_converted_artifact(const Artifact& source, const std::string& out_dir,
                                const TestRecipe& recipe) {
  LOCKSTEP_TRY(io::Json json,
               io::read_json_file((fs::path(source.dir()) / "config.json").string()));
  for (const char* key : {"quantization", "quantization_config", "mtplx_mtp_quantization"}) {
    std::erase_if(json.as_object(), [&](const auto& member) { return member.first == key; });
  }
  LOCKSTEP_TRY_STATUS(write_model(out_dir, std::move(json), source.config(), recipe,
                                  [&](const ExpectedTensor& tensor) {
                                    const StoredTensor* stored = source.find(tensor.name);
                                    if (stored == nullptr) return std::optional<LogicalTensor>();
                                    return std::optional(stored_values(source, *stored));
                                  }));
  return copy_text_files(source.dir(), out_dir);
}

}  // namespace lockstep::spec
