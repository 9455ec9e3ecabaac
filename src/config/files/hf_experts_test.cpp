// SPDX-License-Identifier: Apache-2.0
#include "config/files/hf_experts.h"

#include "base/text/json.h"
#include "config/files/hf_config.h"
#include "config/files/model_file.h"
#include "config/files_test.h"

namespace trireme::config {
namespace {

using base::Json;

// As in the files of Mixtral 8x7B v0.1.
Json mixtral() {
  return Json::parse(R"({"architectures":["MixtralForCausalLM"],"attention_dropout":0.0,
    "bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":4096,
    "initializer_range":0.02,"intermediate_size":14336,"max_position_embeddings":32768,
    "model_type":"mixtral","num_attention_heads":32,"num_experts_per_tok":2,
    "num_hidden_layers":32,"num_key_value_heads":8,"num_local_experts":8,
    "output_router_logits":false,"rms_norm_eps":1e-05,"rope_theta":1000000.0,
    "router_aux_loss_coef":0.02,"sliding_window":null,"tie_word_embeddings":false,
    "torch_dtype":"bfloat16","use_cache":true,"vocab_size":32000})");
}
// As in the files of Qwen3 30B-A3B.
Json qwen3_moe() {
  return Json::parse(R"({"architectures":["Qwen3MoeForCausalLM"],"attention_bias":false,
    "attention_dropout":0.0,"bos_token_id":151643,"decoder_sparse_step":1,"eos_token_id":151645,
    "head_dim":128,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
    "intermediate_size":6144,"max_position_embeddings":40960,"max_window_layers":48,
    "mlp_only_layers":[],"model_type":"qwen3_moe","moe_intermediate_size":768,
    "norm_topk_prob":true,"num_attention_heads":32,"num_experts":128,"num_experts_per_tok":8,
    "num_hidden_layers":48,"num_key_value_heads":4,"output_router_logits":false,
    "rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000.0,
    "router_aux_loss_coef":0.001,"sliding_window":null,"tie_word_embeddings":false,
    "use_sliding_window":false,"vocab_size":151936})");
}
// As in the files of OLMoE 1B-7B 0924.
Json olmoe() {
  return Json::parse(R"({"architectures":["OlmoeForCausalLM"],"attention_bias":false,
    "attention_dropout":0.0,"clip_qkv":null,"eos_token_id":50279,"hidden_act":"silu",
    "hidden_size":2048,"initializer_range":0.02,"intermediate_size":1024,
    "max_position_embeddings":4096,"model_type":"olmoe","norm_topk_prob":false,
    "num_attention_heads":16,"num_experts":64,"num_experts_per_tok":8,"num_hidden_layers":16,
    "num_key_value_heads":16,"output_router_logits":false,"pad_token_id":1,"rms_norm_eps":1e-05,
    "rope_scaling":null,"rope_theta":10000.0,"router_aux_loss_coef":0.01,
    "tie_word_embeddings":false,"vocab_size":50304})");
}

// The model without the terms that balance its experts, which config.json has in part.
spec::ModelSpec plain(spec::ModelDims dims) {
  if (dims.moe) dims.moe->balance = {};
  return spec::make_model(dims);
}
std::string hf_refusal(Json json, const std::string& key, const Json& value) {
  json[key] = value;
  return message_of([&] { (void)dims_from_hf(json, "x"); });
}
std::string write_refusal(const spec::ModelDims& dims) {
  return message_of([&] { (void)hf_config_of(dims, base::DType::f32); });
}

TEST(HfExperts, published_files_give_the_shipped_models) {
  const std::vector<std::pair<Json, std::string>> files = {
      {mixtral(), "mixtral-8x7b"}, {qwen3_moe(), "qwen3-30b-a3b"}, {olmoe(), "olmoe-1b-7b"}};
  for (const auto& [json, name] : files) {
    const spec::ModelDims read = dims_from_hf(json, name);
    const spec::ModelDims shipped = model_from_file(name, {shipped_models()});
    EXPECT_TRUE(plain(read) == plain(shipped)) << name;
    EXPECT_EQ(read.moe->balance.aux, shipped.moe->balance.aux) << name;
    const Json written = hf_config_of(shipped, base::DType::bf16);
    EXPECT_EQ(written["model_type"], json["model_type"]);
    EXPECT_EQ(written["architectures"], json["architectures"]);
    EXPECT_TRUE(plain(dims_from_hf(written, name)) == plain(shipped)) << name;
    // Every key of the published file that describes the function has its value.
    for (const auto& [key, value] : json.items()) {
      const bool is_other = key.find("token_id") != std::string::npos || key == "torch_dtype" ||
                            key == "max_window_layers" || key == "attention_bias" ||
                            (name == "qwen3-30b-a3b" && key == "intermediate_size");
      if (!is_other) {
        EXPECT_EQ(written.value(key, Json()), value) << name << ": " << key;
      }
    }
  }
}

TEST(HfExperts, absent_keys_have_the_defaults_of_transformers) {
  const auto small = [](const char* type) {
    return Json{{"model_type", type},     {"vocab_size", 10},         {"hidden_size", 64},
                {"num_hidden_layers", 2}, {"num_attention_heads", 8}, {"intermediate_size", 16}};
  };
  const spec::ModelDims a = dims_from_hf(small("mixtral"), "a");
  EXPECT_EQ(a.moe->router.experts, 8);
  EXPECT_EQ(a.moe->router.chosen, 2);
  EXPECT_TRUE(a.moe->router.renormalizes);
  EXPECT_EQ(a.moe->ffn, 16);
  EXPECT_EQ(a.rope.theta, 1e6);
  EXPECT_EQ(a.norm_eps, 1e-5F);
  EXPECT_EQ(a.max_seq, 131072);
  EXPECT_EQ(a.kv_heads, 8);
  const spec::ModelDims b = dims_from_hf(small("qwen3_moe"), "b");
  EXPECT_EQ(b.moe->router.experts, 128);
  EXPECT_EQ(b.moe->router.chosen, 8);
  EXPECT_FALSE(b.moe->router.renormalizes);
  EXPECT_EQ(b.moe->ffn, 768);
  EXPECT_EQ(b.ffn, 0);
  EXPECT_EQ(b.kv_heads, 4);
  EXPECT_EQ(b.head_dim, 8);
  EXPECT_TRUE(b.qk_norm);
  EXPECT_FALSE(b.qk_norm_whole);
  EXPECT_EQ(b.moe->balance.aux, 0.001F);
  const spec::ModelDims c = dims_from_hf(small("olmoe"), "c");
  EXPECT_EQ(c.moe->router.experts, 64);
  EXPECT_EQ(c.moe->ffn, 16);
  EXPECT_TRUE(c.qk_norm_whole);
  EXPECT_EQ(c.qk_norm_eps, 1e-5F);
  EXPECT_EQ(c.clip_qkv, 0.0F);
  EXPECT_EQ(c.kv_heads, 8);
}

TEST(HfExperts, both_names_of_the_number_of_experts_are_read) {
  Json json = qwen3_moe();
  json.erase("num_experts");
  json["num_local_experts"] = 16;
  EXPECT_EQ(dims_from_hf(json, "x").moe->router.experts, 16);
  json["num_experts"] = 16;
  EXPECT_EQ(dims_from_hf(json, "x").moe->router.experts, 16);
  expect_contains(hf_refusal(json, "num_experts", 17),
                  "num_experts: 17 contradicts num_local_experts = 16");
}

TEST(HfExperts, dense_layers_of_qwen3_moe_round_trip) {
  struct Case {
    int64_t step;
    Json dense;
    int dense_layers, expert_step;
  };
  const std::vector<Case> cases = {
      {1, Json::array(), 0, 1}, {1, {0, 1, 2}, 3, 1}, {2, Json::array(), 0, 2},
      {3, Json::array(), 0, 3}, {2, {1, 3}, 4, 2},    {1, {0, 1, 2, 4, 6}, 2, 2},
      {8, Json::array(), 7, 1},  // the last block alone, in its simplest form
  };
  for (const Case& one : cases) {
    Json json = qwen3_moe();
    json["num_hidden_layers"] = 8;
    json["decoder_sparse_step"] = one.step;
    json["mlp_only_layers"] = one.dense;
    const spec::ModelDims dims = dims_from_hf(json, "x");
    EXPECT_EQ(dims.dense_layers, one.dense_layers) << one.step << one.dense;
    EXPECT_EQ(dims.expert_step, one.expert_step) << one.step << one.dense;
    EXPECT_EQ(dims.ffn, spec::expert_blocks(dims) < 8 ? 6144 : 0);
    for (int layer = 0; layer < 8; ++layer) {
      const bool is_dense = std::ranges::find(one.dense, Json(layer)) != one.dense.end();
      EXPECT_EQ(spec::has_experts(dims, layer), (layer + 1) % one.step == 0 && !is_dense);
    }
    const Json written = hf_config_of(dims, base::DType::f32);
    EXPECT_TRUE(plain(dims_from_hf(written, "x")) == plain(dims));
  }
}

TEST(HfExperts, clip_qkv_round_trips) {
  Json json = olmoe();
  json["clip_qkv"] = 8.0;
  const spec::ModelDims dims = dims_from_hf(json, "x");
  EXPECT_EQ(dims.clip_qkv, 8.0F);
  EXPECT_EQ(hf_config_of(dims, base::DType::f32)["clip_qkv"], 8.0);
}

TEST(HfExperts, unsupported_keys_are_refused_by_name) {
  expect_contains(hf_refusal(mixtral(), "sliding_window", 4096),
                  "sliding_window: 4096 is not supported");
  EXPECT_EQ(hf_refusal(mixtral(), "sliding_window", 32768), "");
  expect_contains(hf_refusal(mixtral(), "router_jitter_noise", 0.1),
                  "router_jitter_noise: only 0 is supported");
  expect_contains(hf_refusal(mixtral(), "num_local_experts", 0), "num_local_experts: found 0");
  expect_contains(hf_refusal(mixtral(), "num_experts_per_tok", 9),
                  "experts_per_token = 9: from 1 to experts = 8");
  expect_contains(hf_refusal(qwen3_moe(), "mlp_only_layers", {0, 2}),
                  "mlp_only_layers: layer 4 breaks the pattern");
  expect_contains(hf_refusal(qwen3_moe(), "mlp_only_layers", {48}), "mlp_only_layers: found [48]");
  expect_contains(hf_refusal(qwen3_moe(), "decoder_sparse_step", 0),
                  "decoder_sparse_step: found 0");
  expect_contains(hf_refusal(qwen3_moe(), "use_sliding_window", true), "use_sliding_window: true");
  expect_contains(hf_refusal(qwen3_moe(), "attention_bias", true), "attention_bias: true");
  expect_contains(hf_refusal(olmoe(), "head_dim", 64),
                  "head_dim: 64 with num_attention_heads = 16");
  expect_contains(hf_refusal(olmoe(), "clip_qkv", -1), "clip_qkv: found -1");
  expect_contains(hf_refusal(olmoe(), "sliding_window", 4096), "sliding_window: 4096");
  expect_contains(hf_refusal(olmoe(), "model_type", "deepseek_v3"),
                  "\"deepseek_v3\" is not supported yet: its attention (MLA) is missing");
}

TEST(HfExperts, models_without_a_type_are_not_written) {
  const spec::ModelDims mix = dims_from_hf(mixtral(), "m"), olm = dims_from_hf(olmoe(), "o");
  const auto changed = [](spec::ModelDims dims, const auto& change) {
    change(dims);
    return write_refusal(dims);
  };
  using D = spec::ModelDims;
  EXPECT_EQ(write_refusal(mix), "");
  expect_contains(changed(mix, [](D& d) { d.moe->router.score = spec::RouterScore::sigmoid; }),
                  "score = \"sigmoid\"");
  expect_contains(changed(mix, [](D& d) { d.moe->router.renormalizes = false; }),
                  "renormalize = false and without qk_norm");
  expect_contains(changed(mix, [](D& d) { d.moe->router.groups = 2; }), "expert_groups");
  expect_contains(changed(mix, [](D& d) { d.moe->router.scale = 2; }), "routed_scale");
  expect_contains(changed(mix, [](D& d) { d.moe->router.has_bias = true; }), "router_bias");
  expect_contains(changed(mix, [](D& d) { d.moe->shared_ffn = 2; }), "shared_ffn");
  expect_contains(changed(mix, [](D& d) { d.clip_qkv = 2; }), "clip_qkv");
  expect_contains(changed(mix,
                          [](D& d) {
                            d.dense_layers = 1;
                            d.ffn = 8;
                          }),
                  "dense_layers");
  expect_contains(changed(olm, [](D& d) { d.head_dim = 64; }), "heads * head_dim is not hidden");
  expect_contains(changed(olm,
                          [](D& d) {
                            d.moe.reset();
                            d.ffn = 8;
                          }),
                  "qk_norm_whole");
}

}  // namespace
}  // namespace trireme::config
