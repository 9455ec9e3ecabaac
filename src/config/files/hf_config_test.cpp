// SPDX-License-Identifier: Apache-2.0
#include "config/files/hf_config.h"

#include "base/text/json.h"
#include "config/files/model_file.h"
#include "config/files_test.h"

namespace trireme::config {
namespace {

using base::Json;

Json gpt2() {
  return Json::parse(R"({"model_type":"gpt2","vocab_size":50257,"n_positions":1024,"n_ctx":1024,
    "n_embd":768,"n_layer":12,"n_head":12,"n_inner":null,"activation_function":"gelu_new",
    "layer_norm_epsilon":1e-05,"initializer_range":0.02,"attn_pdrop":0.1,"embd_pdrop":0.1,
    "resid_pdrop":0.1,"bos_token_id":50256,"eos_token_id":50256,"architectures":["GPT2LMHeadModel"],
    "task_specific_params":{"text-generation":{"do_sample":true,"max_length":50}}})");
}
// The old form, as in the files of Llama 3.2 1B.
Json llama() {
  return Json::parse(R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,
    "attention_dropout":0.0,"bos_token_id":128000,"eos_token_id":[128001,128008],"head_dim":64,
    "hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,"intermediate_size":8192,
    "max_position_embeddings":131072,"mlp_bias":false,"model_type":"llama",
    "num_attention_heads":32,"num_hidden_layers":16,"num_key_value_heads":8,"pretraining_tp":1,
    "rms_norm_eps":1e-05,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,
    "low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},
    "rope_theta":500000.0,"tie_word_embeddings":true,"torch_dtype":"bfloat16","use_cache":true,
    "vocab_size":128256})");
}
Json qwen2() {
  return Json::parse(R"({"model_type":"qwen2","vocab_size":151936,"hidden_size":896,
    "intermediate_size":4864,"num_hidden_layers":24,"num_attention_heads":14,
    "num_key_value_heads":2,"hidden_act":"silu","max_position_embeddings":131072,
    "max_window_layers":24,"rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":131072,
    "tie_word_embeddings":true,"use_sliding_window":false})");
}
Json qwen3() {
  return Json::parse(R"({"model_type":"qwen3","vocab_size":151936,"hidden_size":1024,
    "intermediate_size":3072,"num_hidden_layers":28,"num_attention_heads":16,
    "num_key_value_heads":8,"head_dim":128,"hidden_act":"silu","max_position_embeddings":40960,
    "attention_bias":false,"rms_norm_eps":1e-06,"rope_parameters":{"rope_theta":1000000,
    "rope_type":"default"},"sliding_window":null,"layer_types":["full_attention"],
    "tie_word_embeddings":true,"use_sliding_window":false,"dtype":"bfloat16"})");
}

// As in the files of Mistral 7B v0.1; v0.3 has a null window.
Json mistral() {
  return Json::parse(R"({"architectures":["MistralForCausalLM"],"bos_token_id":1,"eos_token_id":2,
    "hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,"intermediate_size":14336,
    "max_position_embeddings":32768,"model_type":"mistral","num_attention_heads":32,
    "num_hidden_layers":32,"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":10000.0,
    "sliding_window":4096,"tie_word_embeddings":false,"torch_dtype":"bfloat16","use_cache":true,
    "vocab_size":32000})");
}

spec::ModelSpec shipped(const std::string& name) {
  return spec::make_model(model_from_file(name, {shipped_models()}));
}
spec::ModelSpec model_of(const Json& json, const std::string& name) {
  return spec::make_model(dims_from_hf(json, name));
}
std::string refusal(Json json, const std::string& key, const Json& value) {
  json[key] = value;
  return message_of([&] { (void)dims_from_hf(json, "x"); });
}

TEST(HfConfig, published_files_give_the_shipped_models) {
  EXPECT_TRUE(model_of(gpt2(), "gpt2-124m") == shipped("gpt2-124m"));
  EXPECT_TRUE(model_of(llama(), "llama-1b") == shipped("llama-1b"));
  EXPECT_TRUE(model_of(qwen2(), "qwen2-0.5b") == shipped("qwen2-0.5b"));
  EXPECT_TRUE(model_of(qwen3(), "qwen3-0.6b") == shipped("qwen3-0.6b"));
}

TEST(HfConfig, a_mistral_is_the_llama_of_its_sizes_up_to_its_window) {
  const spec::ModelDims windowed = dims_from_hf(mistral(), "m");
  EXPECT_EQ(spec::parameter_count(spec::make_model(windowed)), 7'241'732'096);  // as published
  EXPECT_EQ(windowed.max_seq, 4096);
  Json full = mistral();
  full["sliding_window"] = nullptr;
  full["head_dim"] = 64;
  const spec::ModelDims dims = dims_from_hf(full, "m");
  EXPECT_EQ(dims.max_seq, 32768);
  EXPECT_EQ(dims.head_dim, 64);
  const Json written = hf_config_of(dims, base::DType::bf16);
  EXPECT_EQ(written["model_type"], "llama");
  EXPECT_TRUE(spec::make_model(dims_from_hf(written, "m")) == spec::make_model(dims));
  // The defaults of transformers for absent keys.
  for (const char* key : {"sliding_window", "num_key_value_heads", "max_position_embeddings"}) {
    full.erase(key);
  }
  EXPECT_EQ(dims_from_hf(full, "m").max_seq, 4096);
  EXPECT_EQ(dims_from_hf(full, "m").kv_heads, 8);
  full["sliding_window"] = nullptr;
  EXPECT_EQ(dims_from_hf(full, "m").max_seq, 131072);
  EXPECT_NE(refusal(mistral(), "sliding_window", 0).find("sliding_window: found 0"),
            std::string::npos);
}

TEST(HfConfig, old_and_new_rope_keys_mean_the_same) {
  Json fresh = llama();
  fresh["rope_parameters"] = fresh["rope_scaling"];
  fresh["rope_parameters"]["rope_theta"] = 500000.0;
  fresh.erase("rope_scaling");
  fresh.erase("rope_theta");
  EXPECT_TRUE(model_of(fresh, "a") == model_of(llama(), "a"));
  Json both = fresh;
  both["rope_theta"] = 500000;
  both["rope_scaling"] = llama()["rope_scaling"];
  EXPECT_TRUE(model_of(both, "a") == model_of(llama(), "a"));
  Json first = llama();
  first["rope_scaling"]["type"] = first["rope_scaling"]["rope_type"];
  first["rope_scaling"].erase("rope_type");
  EXPECT_TRUE(model_of(first, "a") == model_of(llama(), "a"));
  both["rope_theta"] = 10000;
  expect_contains(message_of([&] { (void)dims_from_hf(both, "x"); }),
                  "rope_parameters: contradicts rope_theta and rope_scaling");
}

TEST(HfConfig, absent_and_null_keys_have_their_defaults) {
  Json json = Json::parse(R"({"model_type":"llama","vocab_size":10,"hidden_size":24,
    "intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":4,
    "num_key_value_heads":null,"head_dim":null,"rope_scaling":null})");
  const spec::ModelDims d = dims_from_hf(json, "x");
  EXPECT_EQ(d.kv_heads, 4);
  EXPECT_EQ(d.head_dim, 6);
  EXPECT_EQ(d.max_seq, 2048);
  EXPECT_EQ(d.norm_eps, 1e-6F);
  EXPECT_EQ(d.rope.theta, 10000);
  EXPECT_FALSE(d.tied_head);
  json["model_type"] = "qwen3";
  EXPECT_EQ(dims_from_hf(json, "x").head_dim, 128);
}

TEST(HfConfig, written_files_read_back_equal) {
  for (const std::string& name : model_names({shipped_models()})) {
    spec::ModelDims dims = model_from_file(name, {shipped_models()});
    if (dims.moe) {
      // Other terms that balance experts have no key.
      dims.moe->balance = {.aux = dims.moe->balance.aux};
      // Those without norms of q and k and without renormalized weights are for benchmarks.
      if (!dims.qk_norm && !dims.moe->router.renormalizes) continue;
    }
    const Json json = hf_config_of(dims, base::DType::bf16);
    const spec::ModelDims again = dims_from_hf(Json::parse(json.dump(2)), name);
    EXPECT_TRUE(spec::make_model(dims) == spec::make_model(again)) << json.dump(1);
    EXPECT_EQ(hf_config_of(again, base::DType::bf16), json);
    EXPECT_EQ(json["torch_dtype"], "bfloat16");
  }
}

TEST(HfConfig, settings_of_absent_norms_are_ignored) {
  spec::ModelDims dims = dims_from_hf(llama(), "x");
  dims.qk_norm_eps = 0.25F;
  EXPECT_TRUE(spec::make_model(dims) == model_of(llama(), "x"));
}

TEST(HfConfig, written_files_have_the_keys_of_their_type) {
  const auto written = [](const char* name) {
    return hf_config_of(model_from_file(name, {shipped_models()}), base::DType::f32);
  };
  EXPECT_EQ(written("gpt2-124m")["architectures"], Json({"GPT2LMHeadModel"}));
  EXPECT_EQ(written("llama-1b")["architectures"], Json({"LlamaForCausalLM"}));
  EXPECT_EQ(written("qwen2-0.5b")["architectures"], Json({"Qwen2ForCausalLM"}));
  EXPECT_EQ(written("qwen3-0.6b")["architectures"], Json({"Qwen3ForCausalLM"}));
  const Json llama_json = written("llama-1b");
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "rope_theta",
        "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "model_type",
        "max_position_embeddings", "tie_word_embeddings", "rope_scaling", "hidden_act"}) {
    EXPECT_EQ(llama_json[key], llama()[key]) << key;
  }
  EXPECT_EQ(llama_json["dtype"], "float32");
  EXPECT_TRUE(written("llama3-70b")["rope_scaling"].is_null());
  const Json gpt2_json = written("gpt2-124m");
  for (const char* key : {"n_positions", "n_ctx", "n_embd", "n_layer", "n_head"}) {
    EXPECT_EQ(gpt2_json[key], gpt2()[key]) << key;
  }
}

TEST(HfConfig, refusals_name_the_key) {
  const Json window = {{"rope_type", "yarn"}, {"factor", 4.0}};
  const std::vector<std::pair<std::string, std::string>> cases = {
      {refusal(llama(), "model_type", "gemma"),
       "model_type: \"gemma\" is not supported; supported: "
       "gpt2, llama, mistral, qwen2, qwen3"},
      {refusal(llama(), "model_type", nullptr), "model_type: (none) is not supported"},
      {refusal(llama(), "attention_bias", true), "attention_bias: true is not supported"},
      {refusal(qwen3(), "attention_bias", true), "attention_bias: true is not supported"},
      {refusal(llama(), "mlp_bias", true), "mlp_bias: true is not supported"},
      {refusal(llama(), "mlp_bias", 1), "mlp_bias: found 1, expected true or false"},
      {refusal(llama(), "hidden_act", "gelu"),
       "hidden_act: \"gelu\" is not supported; supported: silu"},
      {refusal(llama(), "sliding_window", 4096), "sliding_window: 4096 is not supported"},
      {refusal(qwen2(), "use_sliding_window", true), "use_sliding_window: true is not supported"},
      {refusal(qwen3(), "layer_types", {"full_attention", "sliding_attention"}),
       "layer_types: \"sliding_attention\" is not supported"},
      {refusal(llama(), "rope_scaling", window),
       "rope_scaling.rope_type: \"yarn\" is not supported; "
       "supported: default, llama3"},
      {refusal(llama(), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}),
       "rope_scaling.type: \"linear\" is not supported"},
      {refusal(llama(), "rope_scaling", {{"rope_type", "llama3"}}),
       "rope_scaling.factor: required, but not given"},
      {refusal(llama(), "rope_scaling", 3), "rope_scaling: found 3, expected an object"},
      {refusal(llama(), "rope_parameters", {{"partial_rotary_factor", 0.5}}),
       "rope_parameters.partial_rotary_factor: only 1 is supported"},
      {refusal(llama(), "rope_theta", "big"), "rope_theta: found \"big\", expected a number"},
      {refusal(llama(), "rms_norm_eps", 0), "rms_norm_eps: found 0, expected a number from"},
      {refusal(llama(), "rms_norm_eps", 2),
       "rms_norm_eps: found 2, expected a number from 1e-12 to 1"},
      {refusal(gpt2(), "n_embd", 768 << 20), "n_inner: not given, so 3221225472; at most"},
      {refusal(llama(), "vocab_size", -3), "vocab_size: found -3, expected an integer from 1"},
      {refusal(llama(), "vocab_size", 1.5), "vocab_size: found 1.5, expected an integer"},
      {refusal(llama(), "vocab_size", nullptr), "vocab_size: required, but not given"},
      {refusal(llama(), "vocab_size", UINT64_MAX), "vocab_size: found 18446744073709551615"},
      {refusal(llama(), "num_hidden_layers", 1000000), "num_hidden_layers: found 1000000"},
      {refusal(llama(), "num_key_value_heads", 5), "kv_heads = 5: must divide heads = 32"},
      {refusal(llama(), "quantization_config", {{"bits", 4}}),
       "quantization_config: {\"bits\":4} is not"},
      {refusal(qwen2(), "num_attention_heads", 13),
       "num_attention_heads: 13 must divide hidden_size"},
      {refusal(gpt2(), "activation_function", "relu"),
       "activation_function: \"relu\" is not supported"},
      {refusal(gpt2(), "n_head", 7), "n_head: 7 must divide n_embd = 768"},
      {refusal(gpt2(), "scale_attn_weights", false), "scale_attn_weights: false is not supported"},
      {refusal(gpt2(), "scale_attn_by_inverse_layer_idx", true),
       "scale_attn_by_inverse_layer_idx: true"},
      {refusal(gpt2(), "add_cross_attention", true), "add_cross_attention: true"},
      {refusal(gpt2(), "tie_word_embeddings", false),
       "tie_word_embeddings: false is not supported"},
      {message_of([] { (void)dims_from_hf(Json::array(), "x"); }), "expected an object"},
  };
  for (const auto& [message, wanted] : cases) expect_contains(message, wanted);

  Json many = llama();
  many["attention_bias"] = many["mlp_bias"] = true;
  many["hidden_size"] = "wide";
  expect_contains(message_of([&] { (void)dims_from_hf(many, "x"); }), "3 problems");
}

TEST(HfConfig, files_and_folders_are_read) {
  const TemporaryFolder folder;
  folder.write("tiny-model/config.json", gpt2().dump());
  const auto path = folder.path() / "tiny-model";
  EXPECT_EQ(model_from_file(path.string(), {}).name, "tiny-model");
  EXPECT_EQ(model_from_file((path / "config.json").string(), {}).name, "tiny-model");
  folder.write("bad/config.json", R"({"model_type":"bert"})");
  expect_contains(message_of([&] { (void)model_from_file((folder.path() / "bad").string(), {}); }),
                  "bad/config.json: Hugging Face config: 1 problem");
}

TEST(HfConfig, models_that_no_type_describes_are_refused) {
  spec::ModelDims d = dims_from_hf(qwen3(), "x");
  d.qkv_bias = true;
  expect_contains(message_of([&] { (void)hf_config_of(d, base::DType::f32); }), "no supported");
  d.qkv_bias = false;
  d.qk_norm_eps = 1e-3F;
  expect_contains(message_of([&] { (void)hf_config_of(d, base::DType::f32); }),
                  "qk_norm_eps = 0.001");
  spec::ModelDims g = dims_from_hf(gpt2(), "x");
  g.kv_heads = 6;
  expect_contains(message_of([&] { (void)hf_config_of(g, base::DType::f32); }), "kv_heads = 6");
  EXPECT_THROW((void)hf_config_of(dims_from_hf(gpt2(), "x"), base::DType::i32), base::ConfigError);
}

}  // namespace
}  // namespace trireme::config
