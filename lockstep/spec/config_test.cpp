// SPDX-License-Identifier: Apache-2.0
#include "lockstep/spec/config.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "lockstep/io/json.h"
#include "lockstep/spec/generation_config.h"
#include "lockstep/spec/quantization_block.h"

namespace lockstep::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kPath35b = "tests/data/qwen3.6-35b-a3b.json";

io::Json json_35b() {
  return io::read_json_file(kPath35b).value();
}

using Edit = std::function<void(io::Json& top, io::Json& text)>;

void erase(io::Json& json, const std::string& key) {
  std::erase_if(json.as_object(), [&](const auto& member) { return member.first == key; });
}

io::Json& member(io::Json& json, const std::string& key) {
  for (auto& [name, value] : json.as_object()) {
    if (name == key) return value;
  }
  return json.set(key, io::Json::object());
}

Result<ModelConfig> edited(const Edit& edit) {
  io::Json json = json_35b();
  edit(json, member(json, "text_config"));
  return parse_config(json.dump(), "config.json");
}

std::string error_of(const Edit& edit) {
  const auto config = edited(edit);
  return config.ok() ? "no error" : config.error().to_string();
}

TEST(Config, ReadsThe35b) {
  const auto loaded = load_config(kPath35b);
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
  const TextConfig& text = loaded->text;
  EXPECT_EQ(text.hidden, 2048);
  EXPECT_EQ(text.layers, 40);
  int attention = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    const bool full = text.layer_kinds[i] == LayerKind::kAttention;
    EXPECT_EQ(full, (i + 1) % 4 == 0) << i;
    attention += full;
  }
  EXPECT_EQ(attention, 10);
  EXPECT_EQ(text.rotary_dim, 64);
  EXPECT_EQ(text.rope_theta, 1e7);
  EXPECT_THAT(text.mrope_section, ElementsAre(11, 11, 10));
  EXPECT_EQ(text.conv_channels(), 8192);
  EXPECT_EQ(text.experts, 256);
  EXPECT_EQ(text.experts_per_token, 8);
  EXPECT_EQ(text.vocab_rows, 248320);
  EXPECT_EQ(text.context_tokens_max, 262144);
  EXPECT_EQ(text.rms_eps, 1e-6);
  EXPECT_EQ(text.mtp_layers, 1);
  EXPECT_THAT(text.eos_ids, ElementsAre(248044));
  EXPECT_TRUE(loaded->has_vision);
  EXPECT_EQ(loaded->vision.depth, 27);
  EXPECT_EQ(loaded->vision.position_embeddings, 2304);
  EXPECT_EQ(loaded->image_token_id, 248056);
  EXPECT_EQ(loaded->vision_start_token_id, 248053);
  EXPECT_FALSE(loaded->mtp_hidden_is_pre_norm);
  EXPECT_THAT(loaded->quantization, IsEmpty());
  EXPECT_THAT(loaded->warnings, IsEmpty());
}

TEST(Config, MissingRopeBlockIsAnError) {
  EXPECT_THAT(error_of([](auto&, io::Json& text) { erase(text, "rope_parameters"); }),
              HasSubstr("'text_config.rope_parameters' is missing"));
  for (const char* key : {"rope_type", "rope_theta", "partial_rotary_factor", "mrope_section"}) {
    EXPECT_THAT(
        error_of([&](auto&, io::Json& text) { erase(member(text, "rope_parameters"), key); }),
        HasSubstr(std::string("'rope_parameters.") + key + "' is missing"));
  }
}

TEST(Config, RopeTypeUnderBothNames) {
  const auto typed = edited([](auto&, io::Json& text) {
    erase(member(text, "rope_parameters"), "rope_type");
    member(text, "rope_parameters").set("type", "default");
  });
  EXPECT_TRUE(typed.ok());
  const std::string yarn = error_of(
      [](auto&, io::Json& text) { member(text, "rope_parameters").set("rope_type", "yarn"); });
  EXPECT_THAT(yarn, HasSubstr("'yarn', only 'default' is supported"));
}

TEST(Config, MropeSectionMustFit) {
  EXPECT_THAT(error_of([](auto&, io::Json& text) {
                member(text, "rope_parameters").set("mrope_section", io::Json::Array{11, 11, 11});
              }),
              HasSubstr("sums to 33, expected half the rotary width of 64"));
}

// Trap T-25.
TEST(Config, LayerTypesAndIntervalMustAgree) {
  EXPECT_THAT(error_of([](auto&, io::Json& text) { text.set("full_attention_interval", 5); }),
              HasSubstr("entry 3 is \"full_attention\", which contradicts"));
  EXPECT_THAT(error_of([](auto&, io::Json& text) { text.set("num_hidden_layers", 39); }),
              HasSubstr("has 40 entries, 'num_hidden_layers' is 39"));
  EXPECT_THAT(error_of([](auto&, io::Json& text) {
                member(text, "layer_types").as_array()[2] = "sliding_attention";
              }),
              HasSubstr("entry 2 is \"sliding_attention\""));
  const auto no_types = edited([](auto&, io::Json& text) { erase(text, "layer_types"); });
  ASSERT_TRUE(no_types.ok());
  EXPECT_EQ(no_types->text.layer_kinds, load_config(kPath35b)->text.layer_kinds);
  const auto default_interval = edited([](auto&, io::Json& text) {
    erase(text, "layer_types");
    erase(text, "full_attention_interval");
  });
  EXPECT_EQ(default_interval->text.layer_kinds, no_types->text.layer_kinds);
  // Types alone may follow no interval at all.
  const auto free_order = edited([](auto&, io::Json& text) {
    erase(text, "full_attention_interval");
    member(text, "layer_types").as_array()[0] = "full_attention";
  });
  EXPECT_EQ(free_order->text.layer_kinds[0], LayerKind::kAttention);
}

TEST(Config, EveryRequiredKeyIsNamed) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "linear_conv_kernel_dim", "linear_num_key_heads", "linear_num_value_heads",
        "linear_key_head_dim", "linear_value_head_dim", "num_experts", "num_experts_per_tok",
        "moe_intermediate_size", "shared_expert_intermediate_size", "vocab_size",
        "max_position_embeddings", "rms_norm_eps"}) {
    EXPECT_THAT(error_of([&](auto&, io::Json& text) { erase(text, key); }),
                HasSubstr(std::string("config.json: 'text_config.") + key + "' is missing"));
    EXPECT_THAT(error_of([&](auto&, io::Json& text) { text.set(key, "many"); }),
                HasSubstr(std::string("'text_config.") + key + "' is string \"many\""));
  }
  for (const char* key : {"depth", "hidden_size", "num_heads", "intermediate_size", "in_channels",
                          "patch_size", "temporal_patch_size", "spatial_merge_size",
                          "out_hidden_size", "num_position_embeddings"}) {
    EXPECT_THAT(error_of([&](io::Json& top, auto&) { erase(member(top, "vision_config"), key); }),
                HasSubstr(std::string("'vision_config.") + key + "' is missing"));
  }
}

TEST(Config, RangesAreChecked) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "head_dim", "num_experts",
                          "vocab_size", "max_position_embeddings", "linear_conv_kernel_dim"}) {
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40}) {
      EXPECT_THAT(error_of([&](auto&, io::Json& text) { text.set(key, bad); }),
                  HasSubstr("is " + std::to_string(bad) + ", expected 1 to"))
          << key;
    }
  }
  EXPECT_THAT(error_of([](auto&, io::Json& text) { text.set("num_experts_per_tok", 257); }),
              HasSubstr("expected 1 to 256"));
  EXPECT_THAT(error_of([](auto&, io::Json& text) { text.set("num_key_value_heads", 3); }),
              HasSubstr("'text_config.num_attention_heads' is 16, expected a multiple"));
  EXPECT_THAT(error_of([](auto&, io::Json& text) { text.set("linear_num_key_heads", 5); }),
              HasSubstr("'text_config.linear_num_value_heads' is 32, expected a multiple"));
  EXPECT_THAT(error_of([](auto&, io::Json& text) { text.set("rms_norm_eps", 0.0); }),
              HasSubstr("rms_norm_eps"));
}

TEST(Config, OtherFeaturesAreRefused) {
  const std::pair<const char*, io::Json> kCases[] = {{"attn_output_gate", false},
                                                     {"attention_bias", true},
                                                     {"hidden_act", "gelu"},
                                                     {"norm_topk_prob", false},
                                                     {"mlp_only_layers", io::Json::Array{1}},
                                                     {"decoder_sparse_step", 2}};
  for (const auto& [key, value] : kCases) {
    const auto config = edited([&](auto&, io::Json& text) { text.set(key, value); });
    ASSERT_FALSE(config.ok()) << key;
    EXPECT_EQ(config.error().code, ErrorCode::kUnsupported) << key;
    EXPECT_THAT(config.error().message, HasSubstr(key));
  }
  EXPECT_THAT(error_of([](io::Json& top, auto&) {
                member(top, "vision_config").set("deepstack_visual_indexes", io::Json::Array{8});
              }),
              HasSubstr("deepstack_visual_indexes"));
  EXPECT_THAT(error_of([](io::Json& top, auto&) { top.set("model_type", "llama"); }),
              HasSubstr("'model_type' is 'llama', this build runs qwen3_5_moe"));
  // The 3.5 files may carry an empty list; it says nothing.
  EXPECT_TRUE(
      edited([](auto&, io::Json& text) { text.set("mlp_only_layers", io::Json::array()); }).ok());
}

TEST(Config, SpecialIdsUnderBothSpellings) {
  const auto renamed = edited([](io::Json& top, auto&) {
    erase(top, "image_token_id");
    erase(top, "vision_start_token_id");
    top.set("image_token_index", 7);
  });
  ASSERT_TRUE(renamed.ok());
  EXPECT_EQ(renamed->image_token_id, 7);
  // Trap T-16: no wrong default stands in for an absent id.
  EXPECT_EQ(renamed->vision_start_token_id, -1);
  EXPECT_THAT(error_of([](io::Json& top, auto&) { top.set("image_token_index", 7); }),
              HasSubstr("'image_token_id' is 248056, but 'image_token_index' is 7"));
}

TEST(Config, EosIdsOfBothLevels) {
  const auto config = edited(
      [](io::Json& top, auto&) { top.set("eos_token_id", io::Json::Array{248046, 248044}); });
  EXPECT_THAT(config->text.eos_ids, ElementsAre(248044, 248046));
  EXPECT_THAT(error_of([](io::Json& top, auto&) { top.set("eos_token_id", -2); }),
              HasSubstr("no token id"));
}

TEST(Config, MtpKeys) {
  const auto other_key = edited([](io::Json& top, io::Json& text) {
    erase(text, "mtp_num_hidden_layers");
    top.set("num_nextn_predict_layers", 1);
    top.set("mtp_hidden_state_mode", "pre_norm");
  });
  EXPECT_EQ(other_key->text.mtp_layers, 1);
  EXPECT_TRUE(other_key->mtp_hidden_is_pre_norm);
  const auto none = edited([](auto&, io::Json& text) { erase(text, "mtp_num_hidden_layers"); });
  EXPECT_EQ(none->text.mtp_layers, 0);
  EXPECT_THAT(error_of([](io::Json& top, auto&) { top.set("mtp_hidden_state_mode", "mid"); }),
              HasSubstr("'mid', expected post_norm or pre_norm"));
}

TEST(Config, TiedEmbeddingsMustAgree) {
  EXPECT_THAT(error_of([](io::Json& top, auto&) { top.set("tie_word_embeddings", true); }),
              HasSubstr("differs"));
  const auto tied = edited([](io::Json& top, io::Json& text) {
    top.set("tie_word_embeddings", true);
    erase(text, "tie_word_embeddings");
  });
  EXPECT_TRUE(tied->text.tie_word_embeddings);
}

TEST(Config, TextOnlyFile) {
  const io::Json full = json_35b();
  const auto config = parse_config(full.find("text_config")->dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  EXPECT_EQ(config->text.hidden, 2048);
  EXPECT_FALSE(config->has_vision);
}

TEST(Config, RefusesWhatIsNoObject) {
  for (const char* text :
       {"", "[]", "3", "{}", R"({"model_type": 3})", R"({"model_type": "qwen3_5_moe"})",
        R"({"model_type": "qwen3_5_moe", "text_config": []})"}) {
    EXPECT_FALSE(parse_config(text, "config.json").ok()) << text;
  }
}

std::vector<DeclaredFormat> quantization(const std::string& text) {
  return parse_quantization(io::parse_json(text, "t").value(), "t").value();
}

TEST(Quantization, OverrideWithoutModeIsAffine) {
  const auto declared = quantization(R"({
    "group_size": 32, "bits": 4, "mode": "mxfp4", "quant_method": "x", "linear_class": null,
    "model.language_model.layers.0.mlp.gate": {"group_size": 64, "bits": 8},
    "lm_head": {},
    "model.visual.blocks.0.attn.qkv": false,
    "language_model.mtp.fc": {"mode": "mxfp8"}})");
  EXPECT_EQ(describe(*find_global(declared)), "mxfp4 4 bit group 32");
  EXPECT_EQ(describe(*find_override(declared, "language_model.model.layers.0.mlp.gate")),
            "affine 8 bit group 64");
  EXPECT_EQ(describe(*find_override(declared, "language_model.lm_head")), "affine 4 bit group 64");
  EXPECT_EQ(describe(*find_override(declared, "vision_tower.blocks.0.attn.qkv")), "float");
  EXPECT_EQ(describe(*find_override(declared, "mtp.fc")), "mxfp8 8 bit group 32");
  EXPECT_EQ(find_override(declared, "quant_method"), nullptr);
  EXPECT_EQ(declared.size(), 5u);
}

TEST(Quantization, GlobalDefaultsPerMode) {
  EXPECT_EQ(describe(*find_global(quantization(R"({"mode": "nvfp4"})"))), "nvfp4 4 bit group 16");
  EXPECT_EQ(describe(*find_global(quantization(R"({"bits": 6})"))), "affine 6 bit group 64");
  EXPECT_EQ(find_global(quantization(R"({"a.b": true})")), nullptr);
}

TEST(Quantization, MatchesFormats) {
  const auto declared = quantization(R"({"bits": 4, "group_size": 64, "x": false})");
  EXPECT_TRUE(matches(*find_global(declared), quant::affine(4, 64, DType::kF16)));
  EXPECT_FALSE(matches(*find_global(declared), quant::affine(4, 32)));
  EXPECT_FALSE(matches(*find_global(declared), quant::mxfp4()));
  EXPECT_TRUE(matches(*find_override(declared, "x"), quant::float_format(DType::kF16)));
  EXPECT_FALSE(matches(*find_override(declared, "x"), quant::affine(4, 64)));
}

TEST(Quantization, BadBlocksAreErrors) {
  for (const char* text : {R"([1])", R"({"bits": "4"})", R"({"bits": 400})", R"({"mode": "fp5"})",
                           R"({"a": {"mode": "fp5"}})", R"({"group_size": -1})"}) {
    EXPECT_FALSE(parse_quantization(io::parse_json(text, "t").value(), "t").ok()) << text;
  }
}

TEST(Quantization, DuplicateBlocksThatDifferAreSaid) {
  const auto config = edited([](io::Json& top, auto&) {
    top.set("quantization", io::Json::object()).set("bits", 4);
    top.set("quantization_config", io::Json::object()).set("bits", 8);
    top.set("mtplx_mtp_quantization", io::Json::object()).set("mode", "mxfp8");
  });
  EXPECT_EQ(find_global(config->quantization)->bits, 4);
  EXPECT_EQ(find_global(config->mtp_quantization)->mode, "mxfp8");
  EXPECT_THAT(config->warnings, ElementsAre(HasSubstr("differ; the first counts")));
}

TEST(GenerationConfig, ReadsTheDemoModels) {
  const auto config = load_generation_config("models/demo/generation_config.json");
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  EXPECT_EQ(config->do_sample, true);
  EXPECT_EQ(config->temperature, 0.6);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->top_p, 0.95);
  EXPECT_FALSE(config->min_p.has_value());
  EXPECT_THAT(config->eos_ids, ElementsAre(6076, 6074));
}

TEST(GenerationConfig, AbsentFileIsEmptyAndBadValuesAreErrors) {
  EXPECT_TRUE(load_generation_config("/nonexistent/generation_config.json").ok());
  EXPECT_THAT(parse_generation_config(R"({"eos_token_id": 5})", "g")->eos_ids, ElementsAre(5));
  for (const char* text :
       {"[]", R"({"temperature": -1})", R"({"top_p": 1.5})", R"({"top_k": "20"})",
        R"({"eos_token_id": ["a"]})", R"({"do_sample": 1})", R"({"repetition_penalty": 0})"}) {
    EXPECT_FALSE(parse_generation_config(text, "g").ok()) << text;
  }
}

}  // namespace
}  // namespace lockstep::spec
