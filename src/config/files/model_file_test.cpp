// SPDX-License-Identifier: Apache-2.0
#include "config/files/model_file.h"

#include <map>

#include "base/text/json.h"
#include "config/files_test.h"

namespace trireme::config {
namespace {

const std::string good_model =
    "family = 'llama'\nlayers = 2\nhidden = 64\nheads = 4\nffn = 8\nvocab = 9\nmax_seq = 4\n";

spec::ModelDims read_model(const std::string& text) {
  const TemporaryFolder folder;
  return model_from_file(folder.write("m.toml", text).string(), {});
}
std::string model_refusal(const std::string& text) {
  return message_of([&] { (void)read_model(text); });
}

TEST(ModelFile, shipped_models_have_their_known_sizes) {
  // Published counts; for models without one, the sum over their matrices, computed by hand.
  const std::map<std::string, int64_t> counts = {
      {"gpt2-10m", 10'844'160},
      {"gpt2-124m", 124'439'808},
      {"gpt2-355m", 354'823'168},
      {"gpt2-774m", 774'030'080},
      {"gpt2-1.5b", 1'557'611'200},
      {"gpt3-175b", 174'604'259'328},
      {"kjv-llama", 836'736},
      {"kjv-moe", 4'629'632},
      {"long-llama", 117'056},
      {"llama-11m", 11'015'040},
      {"llama2-7b", 6'738'415'616},
      {"llama2-13b", 13'015'864'320},
      {"llama3-70b", 70'553'706'496},
      {"llama3.1-8b", 8'030'261'248},
      {"llama3.1-8b-4l", 1'923'125'248},
      {"llama3.1-70b", 70'553'706'496},
      {"llama3.1-405b", 405'853'388'800},
      {"llama3.2-1b", 1'235'814'400},
      {"llama3.2-1b-32k", 1'235'814'400 - (128256 - 32768) * 2048},
      {"llama3.2-3b", 3'212'749'824},
      {"mixtral-2l", 3'164'688'384},
      {"mixtral-8x22b", 140'620'634'112},
      {"mixtral-8x7b", 46'702'792'704},
      {"olmoe-1b-7b", 6'919'161'856},
      {"olmoe-8l", 3'562'571'776},
      {"qwen2-0.5b", 494'032'768},
      {"qwen3-0.6b", 596'049'920},
      {"qwen3-235b-a22b", 235'093'634'560},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen3-30b-a3b-6l", 4'361'054'208},
  };
  std::vector<std::string> names;
  for (const auto& [name, count] : counts) {
    names.push_back(name);
    const spec::ModelDims dims = model_from_file(name, {shipped_models()});
    EXPECT_EQ(dims.name, name);
    EXPECT_EQ(spec::parameter_count(spec::make_model(dims)), count) << name;
  }
  EXPECT_EQ(model_names({shipped_models(), shipped_models()}), names);
}

TEST(ModelFile, earlier_names_find_their_models) {
  for (const EarlierName& earlier : earlier_model_names()) {
    const spec::ModelDims was = model_from_file(std::string(earlier.name), {shipped_models()});
    spec::ModelDims now = model_from_file(std::string(earlier.now), {shipped_models()});
    EXPECT_EQ(was.name, earlier.name);
    EXPECT_EQ(now.name, earlier.now);
    now.name = was.name;
    EXPECT_TRUE(spec::make_model(was) == spec::make_model(now)) << earlier.name;
  }
  // A file of that name has precedence.
  const TemporaryFolder folder;
  folder.write("llama-15m.toml", good_model);
  EXPECT_EQ(model_from_file("llama-15m", {shipped_models(), folder.path()}).hidden, 64);
}

TEST(ModelFile, the_page_lists_every_model) {
  const std::string page = configuration_page();
  for (const std::string& name : model_names({shipped_models()})) {
    EXPECT_NE(page.find("`" + name + "`"), std::string::npos) << name;
  }
}

TEST(ModelFile, json_form_round_trips) {
  for (const std::string& name : model_names({shipped_models()})) {
    const spec::ModelDims dims = model_from_file(name, {shipped_models()});
    const base::Json json = to_json(dims);
    const spec::ModelDims again = dims_from_json(base::Json::parse(json.dump()), "x");
    EXPECT_TRUE(spec::make_model(dims) == spec::make_model(again)) << json.dump(1);
    EXPECT_EQ(to_json(again), json);
  }
}

TEST(ModelFile, every_key_is_read) {
  const spec::ModelDims d = read_model(
      good_model +
      "name = 'x'\nkv_heads = 2\nhead_dim = 6\nnorm_eps = 1e-6\ntied_head = false\n"
      "qkv_bias = true\nqk_norm = true\nqk_norm_eps = 1e-7\ninit_std = 0.1\nrope_theta = 77\n"
      "[rope_scaling]\nfactor = 2\nlow_freq_factor = 1.5\nhigh_freq_factor = 3\n"
      "original_max_position = 5\n");
  EXPECT_EQ(d.name, "x");
  EXPECT_EQ(d.kv_heads, 2);
  EXPECT_EQ(d.head_dim, 6);
  EXPECT_EQ(d.norm_eps, 1e-6F);
  EXPECT_FALSE(d.tied_head);
  EXPECT_TRUE(d.qkv_bias);
  EXPECT_TRUE(d.qk_norm);
  EXPECT_EQ(d.qk_norm_eps, 1e-7F);
  EXPECT_EQ(d.init_std, 0.1F);
  EXPECT_EQ(d.rope.theta, 77);
  EXPECT_EQ(d.rope.scaling, (spec::RopeScaling{2, 1.5, 3, 5}));
  EXPECT_EQ(read_model(good_model).name, "m");
  EXPECT_FALSE(read_model(good_model).rope.scaling);
}

const std::string good_moe =
    "family = 'llama'\nlayers = 4\nhidden = 64\nheads = 4\nvocab = 9\nmax_seq = 4\n"
    "[moe]\nexperts = 8\nexperts_per_token = 2\nexpert_ffn = 6\n";

TEST(ModelFile, every_key_of_experts_is_read) {
  const spec::ModelDims d =
      read_model("ffn = 8\nqk_norm = true\nqk_norm_whole = true\nclip_qkv = 7.5\n" + good_moe +
                 "shared_ffn = 10\nscore = 'sigmoid'\nrenormalize = true\nexpert_groups = 4\n"
                 "chosen_groups = 2\nrouted_scale = 2.5\nrouter_bias = true\naux_loss = 1e-4\n"
                 "aux_scope = 'sequence'\nz_loss = 1e-3\nbias_rate = 0.01\ndense_layers = 2\n"
                 "expert_step = 2\n");
  EXPECT_TRUE(d.qk_norm_whole);
  EXPECT_EQ(d.clip_qkv, 7.5F);
  ASSERT_TRUE(d.moe);
  const spec::RouterSpec router{.experts = 8,
                                .chosen = 2,
                                .score = spec::RouterScore::sigmoid,
                                .renormalizes = true,
                                .groups = 4,
                                .chosen_groups = 2,
                                .scale = 2.5F,
                                .has_bias = true};
  EXPECT_EQ(d.moe->router, router);
  EXPECT_EQ(d.moe->ffn, 6);
  EXPECT_EQ(d.moe->shared_ffn, 10);
  const spec::BalanceSpec balance{
      .aux = 1e-4F, .scope = spec::AuxScope::sequence, .z = 1e-3F, .bias_rate = 0.01F};
  EXPECT_EQ(d.moe->balance, balance);
  EXPECT_EQ(d.dense_layers, 2);
  EXPECT_EQ(d.expert_step, 2);
  EXPECT_EQ(spec::expert_blocks(d), 1);
  const spec::ModelDims again = dims_from_json(base::Json::parse(to_json(d).dump()), "x");
  EXPECT_TRUE(spec::make_model(d) == spec::make_model(again)) << to_json(d).dump(1);
  EXPECT_EQ(to_json(again), to_json(d));

  const spec::ModelDims plain = read_model(good_moe);
  ASSERT_TRUE(plain.moe);
  EXPECT_EQ(plain.moe->router, (spec::RouterSpec{.experts = 8, .chosen = 2}));
  EXPECT_EQ(plain.moe->balance, spec::BalanceSpec{});
  EXPECT_EQ(plain.ffn, 0);
  EXPECT_FALSE(read_model(good_model).moe);
}

TEST(ModelFile, refusals_of_experts_name_line_and_key) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {good_model + "[moe]\nexperts = 4\n", "m.toml: moe.experts_per_token: required"},
      {good_moe + "dense_layers = 1\n", "m.toml: ffn: required, but not given"},
      {good_moe + "expert_ffm = 1\n", "m.toml:11: moe.expert_ffm: unknown key; did you mean"},
      {good_moe + "score = 'tanh'\n", "score = \"tanh\": must be one of softmax, sigmoid"},
      {good_moe + "expert_groups = 3\n", "m.toml:11: expert_groups = 3: must divide experts = 8"},
      {good_moe + "bias_rate = 0.1\n", "m.toml:11: bias_rate = 0.1: the router has no bias"},
      {"ffn = 8\n" + good_moe + "dense_layers = 4\n",
       "m.toml:12: dense_layers = 4: from 0 to below layers = 4"},
      {"clip_qkv = -1\n" + good_model, "m.toml:1: clip_qkv = -1: must be from 0 to 1000000"},
      {"qk_norm_whole = true\n" + good_model, "m.toml:1: qk_norm_whole = true: needs qk_norm"},
      {"family = 'gpt2'" + good_moe.substr(16) + "dense_layers = 0\n", "experts belong to family"},
  };
  for (const auto& [text, wanted] : cases) expect_contains(model_refusal(text), wanted);
}

TEST(ModelFile, refusals_name_line_and_key) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"family = 'bert'\n", "m.toml:1: family = \"bert\": must be one of gpt2, llama"},
      {"family = 'llama'\n", "m.toml: layers: required, but not given"},
      {good_model + "head = 3\n", "m.toml:8: head: unknown key; did you mean 'heads'?"},
      {good_model + "heads = 3\n", "m.toml:8: not TOML"},
      {good_model + "kv_heads = 3\n", "m.toml:8: kv_heads = 3: must divide heads = 4"},
      {good_model + "head_dim = 3\n", "m.toml:8: head_dim = 3: must be even for RoPE"},
      {"family = 'llama'\nlayers = 100000\nhidden = 1073741824\nheads = 16\nffn = 1073741824\n"
       "vocab = 1073741824\nmax_seq = 8192\n",
       "m.toml:2: layers = 100000: with hidden = 1073741824, heads = 16"},
      {good_model + "norm_eps = 0\n", "m.toml:8: norm_eps = 0: must be from 1e-12 to 1"},
      {good_model + "rope_theta = 1\n", "m.toml:8: rope_theta = 1: must be above 1"},
      {good_model + "[rope_scaling]\nfactr = 2\n",
       "m.toml:9: rope_scaling.factr: unknown key; did you mean 'factor'?"},
      {good_model + "[rope_scaling]\nlow_freq_factor = 9\n",
       "m.toml:9: rope low_freq_factor = 9: must be below high_freq_factor = 4"},
      {good_model + "[rope]\n", "m.toml:8: [rope]: unknown section"},
      {good_model + "rope_scaling = 3\n",
       "m.toml:8: rope_scaling: found the integer 3, expected the section"},
      {"family = 'gpt2'" + good_model.substr(16) + "rope_theta = 5\n",
       "m.toml:8: rope_theta: gpt2 has learned positions; this key is for llama"},
      {"family = 'gpt2'" + good_model.substr(16) + "tied_head = false\n",
       "m.toml:8: tied_head = false: gpt2 has a tied head"},
  };
  for (const auto& [text, wanted] : cases) expect_contains(model_refusal(text), wanted);
  EXPECT_THROW((void)model_from_file("nowhere/m.toml", {}), base::ConfigError);
  EXPECT_THROW((void)model_from_file("nothing", {}), base::ConfigError);
  const TemporaryFolder folder;
  expect_contains(message_of([&] { (void)model_from_file(folder.path().string(), {}); }),
                  "a folder without config.json");
}

}  // namespace
}  // namespace trireme::config
