// SPDX-License-Identifier: Apache-2.0
#include "plan/import/from_hf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/text/json.h"
#include "config/files/model_file.h"
#include "plan/price/price.h"
#include "plan/validate/published_row.h"

namespace trireme::plan {
namespace {

using base::Json;

Json llama() {
  return Json::parse(R"({"model_type":"llama","vocab_size":128256,"hidden_size":8192,
    "intermediate_size":28672,"num_hidden_layers":80,"num_attention_heads":64,
    "num_key_value_heads":8,"hidden_act":"silu","max_position_embeddings":131072,
    "rms_norm_eps":1e-05,"rope_theta":500000.0,"tie_word_embeddings":false})");
}
Json mixtral() {
  return Json::parse(R"({"model_type":"mixtral","vocab_size":32000,"hidden_size":4096,
    "intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,
    "num_key_value_heads":8,"hidden_act":"silu","max_position_embeddings":32768,
    "num_local_experts":8,"num_experts_per_tok":2,"rms_norm_eps":1e-05,"rope_theta":1000000.0,
    "sliding_window":null,"tie_word_embeddings":false,"output_router_logits":false})");
}
Json qwen3_moe() {
  return Json::parse(R"({"model_type":"qwen3_moe","vocab_size":151936,"hidden_size":2048,
    "intermediate_size":6144,"moe_intermediate_size":768,"num_hidden_layers":48,
    "num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,"hidden_act":"silu",
    "max_position_embeddings":40960,"num_experts":128,"num_experts_per_tok":8,
    "decoder_sparse_step":1,"mlp_only_layers":[],"rms_norm_eps":1e-06,"rope_theta":1000000.0,
    "attention_bias":false,"use_sliding_window":false,"tie_word_embeddings":false})");
}
std::string refusal(const Json& json, int64_t seq_len = 0) {
  try {
    (void)from_hf(json, "x", seq_len);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(FromHf, a_model_without_batch_or_layout) {
  const Described d = from_hf(llama(), "llama-70b", 0);
  EXPECT_FALSE(d.layout);
  EXPECT_EQ(d.job.global_batch, 0);
  EXPECT_EQ(d.gpus, 0);
  EXPECT_EQ(d.job.seq_len, 8192);
  ASSERT_TRUE(d.dims);
  EXPECT_EQ(spec::parameter_count(d.job.model), 70'553'706'496);
  EXPECT_EQ(d.job.model.name, "llama-70b");
  EXPECT_EQ(d.assumed, std::vector<std::string>{"sequences of 8192 tokens"});
  EXPECT_EQ(from_hf(llama(), "x", 65536).job.seq_len, 65536);
  Json short_one = llama();
  short_one["max_position_embeddings"] = 2048;
  EXPECT_EQ(from_hf(short_one, "x", 0).job.seq_len, 2048);
}

TEST(FromHf, experts_are_read) {
  const Described eight = from_hf(mixtral(), "mixtral", 4096);
  const auto moe_of = [](const Described& d) { return *spec::moe_of(d.job.model); };
  EXPECT_EQ(moe_of(eight).router.experts, 8);
  EXPECT_EQ(moe_of(eight).router.chosen, 2);
  EXPECT_EQ(moe_of(eight).ffn, 14336);
  EXPECT_TRUE(eight.dims);
  EXPECT_NEAR(static_cast<double>(spec::parameter_count(eight.job.model)), 46.70e9, 5e7);

  Json many = qwen3_moe();
  EXPECT_EQ(moe_of(from_hf(many, "q", 0)).router.experts, 128);
  EXPECT_EQ(moe_of(from_hf(many, "q", 0)).router.chosen, 8);
  EXPECT_EQ(moe_of(from_hf(many, "q", 0)).ffn, 768);
  const auto model = from_hf(many, "q", 0).job.model;
  EXPECT_TRUE(spec::typical_block(model).qk_norm);
  many["mlp_only_layers"] = {0, 1};
  EXPECT_EQ(from_hf(many, "q", 0).dims->dense_layers, 2);
  many["mlp_only_layers"] = {3};
  EXPECT_TRUE(has(refusal(many), "mlp_only_layers"));
  many["mlp_only_layers"] = Json::array();
  many["decoder_sparse_step"] = 2;
  EXPECT_EQ(from_hf(many, "q", 0).dims->expert_step, 2);

  Json shared = qwen3_moe();
  shared["model_type"] = "qwen2_moe";
  shared["shared_expert_intermediate_size"] = 5632;
  EXPECT_EQ(moe_of(from_hf(shared, "q", 0)).shared_ffn, 5632);
  EXPECT_FALSE(from_hf(shared, "q", 0).dims) << "the engine has no gate of shared experts";
  shared["mlp_only_layers"] = {3};
  EXPECT_TRUE(has(refusal(shared), "mlp_only_layers"));
  shared["mlp_only_layers"] = Json::array();
  shared["decoder_sparse_step"] = 2;
  EXPECT_TRUE(has(refusal(shared), "decoder_sparse_step"));
}

TEST(FromHf, quantized_files_are_trained_in_16_bits) {
  Json json = llama();
  json["quantization_config"] = {{"quant_method", "fp8"}};
  const Described d = from_hf(json, "x", 4096);
  ASSERT_EQ(d.assumed.size(), 1U);
  EXPECT_TRUE(has(d.assumed[0], "quantized"));
}

TEST(FromHf, weights_in_float16_are_trained_in_bf16) {
  Json json = llama();
  json["torch_dtype"] = "float16";
  const Described d = from_hf(json, "x", 4096);
  ASSERT_EQ(d.assumed.size(), 1U);
  EXPECT_TRUE(has(d.assumed[0], "--precision fp16"));
  json["torch_dtype"] = "bfloat16";
  EXPECT_TRUE(from_hf(json, "x", 4096).assumed.empty());
}

TEST(FromHf, unsupported_models_are_rejected) {
  const std::string kind = refusal({{"model_type", "deepseek_v3"}});
  EXPECT_TRUE(has(kind, "deepseek_v3") && has(kind, "mixtral") && has(kind, "qwen3")) << kind;
  EXPECT_TRUE(has(refusal(Json::object()), "(none)"));
  EXPECT_TRUE(has(refusal(Json::array()), "expected an object"));
  Json json = mixtral();
  json["num_experts_per_tok"] = 9;
  EXPECT_TRUE(has(refusal(json), "experts_per_token = 9"));
  json["num_experts_per_tok"] = "two";
  EXPECT_TRUE(has(refusal(json), "expected an integer"));
  json = llama();
  json.erase("hidden_size");
  EXPECT_TRUE(has(refusal(json), "hidden_size: required"));
  EXPECT_TRUE(has(refusal(llama(), 1 << 20), "allows 1 to 131072"));
  EXPECT_TRUE(has(refusal(llama(), -1), "allows 1 to"));
}

TEST(FromHf, a_folder_gives_the_name) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("trireme_from_hf_" + std::to_string(::getpid()));
  const fs::path model = folder / "Llama-70B";
  fs::create_directories(model);
  std::ofstream(model / "config.json") << llama();
  std::ofstream(folder / "other.json") << R"({"model_type":"bert"})";
  EXPECT_EQ(from_hf_file(model.string(), 0).job.model.name, "Llama-70B");
  EXPECT_EQ(from_hf_file((model / "config.json").string(), 0).job.model.name, "Llama-70B");
  EXPECT_THROW((void)from_hf_file((folder / "none.json").string(), 0), base::ConfigError);
  EXPECT_THROW((void)from_hf_file(folder.string(), 0), base::ConfigError);
  EXPECT_THROW((void)from_hf_file((folder / "other.json").string(), 0), base::ConfigError);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace trireme::plan
