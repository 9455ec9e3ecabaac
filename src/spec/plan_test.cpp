// SPDX-License-Identifier: Apache-2.0
#include "spec/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "base/text/json.h"
#include "spec/facts/rope.h"
#include "spec/memory/predict.h"

namespace trireme::spec {
namespace {

ModelSpec small_model() {
  return make_model({.name = "small",
                     .family = Family::llama,
                     .layers = 3,
                     .hidden = 32,
                     .heads = 4,
                     .kv_heads = 2,
                     .ffn = 48,
                     .vocab = 100,
                     .max_seq = 64});
}

Plan small_plan(const ModelSpec& model) {
  return solve_or_throw(model, {.seq_len = 32},
                        {.micro_batch = 2, .accumulation = 3, .recompute = Recompute::selective},
                        {});
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(PlanTest, json_round_trips) {
  const Plan plan = small_plan(small_model());
  EXPECT_EQ(plan_from_json(base::Json::parse(to_json(plan).dump())), plan);
}

TEST(PlanTest, json_with_a_wrong_key_is_refused_by_name) {
  const base::Json good = to_json(small_plan(small_model()));
  base::Json json = good;
  json["colour"] = 1;
  EXPECT_NE(message_of([&] { plan_from_json(json); }).find("unknown key 'colour'"),
            std::string::npos);
  json = good;
  json.erase("seq_len");
  EXPECT_NE(message_of([&] { plan_from_json(json); }).find("no key 'seq_len'"), std::string::npos);
  json = good;
  json["recipe"]["grad"] = 7;
  EXPECT_NE(message_of([&] { plan_from_json(json); }).find("grad = 7 has the wrong type"),
            std::string::npos);
  json = good;
  json["layout"]["reduce"] = "sometimes";
  EXPECT_NE(message_of([&] { plan_from_json(json); }).find("allowed are auto, once, each"),
            std::string::npos);
}

TEST(PlanTest, all_broken_rules_are_reported_at_once) {
  const ModelSpec model = small_model();
  Plan plan = small_plan(model);
  plan.layout.cp = 2;
  plan.layout.ulysses = 2;
  plan.seq_len = 65;
  plan.recompute[0] = Recompute::full;
  const std::string message = message_of([&] { check_plan(model, plan); });
  EXPECT_NE(message.find("ulysses = 2: with context_kind = gather"), std::string::npos) << message;
  EXPECT_NE(message.find("seq_len = 65: must be at most the model's max_seq = 64"),
            std::string::npos);
  EXPECT_NE(message.find("its mesh is not that of its layout"), std::string::npos);
  EXPECT_NE(message.find("5 recompute policies for 5 layers"), std::string::npos);
}

TEST(ModelTest, broken_dimensions_are_reported_at_once) {
  const std::string message = message_of([] {
    make_model({.name = "bad",
                .family = Family::llama,
                .layers = 0,
                .hidden = 32,
                .heads = 4,
                .kv_heads = 3,
                .head_dim = 7,
                .ffn = 48,
                .vocab = 100,
                .max_seq = 64});
  });
  EXPECT_NE(message.find("layers = 0"), std::string::npos) << message;
  EXPECT_NE(message.find("kv_heads = 3: must divide heads = 4"), std::string::npos);
  EXPECT_NE(message.find("head_dim = 7: must be even for RoPE"), std::string::npos);
}

ModelDims llama_of(int layers, int64_t hidden, int64_t ffn, int64_t ids) {
  return {.name = "large",
          .family = Family::llama,
          .layers = layers,
          .hidden = hidden,
          .heads = 16,
          .ffn = ffn,
          .vocab = ids,
          .max_seq = int64_t{1} << 24};
}

TEST(ModelTest, sizes_whose_products_pass_the_limit_are_refused) {
  constexpr int64_t max_size = int64_t{1} << 30;
  constexpr int64_t highest = std::numeric_limits<int64_t>::max();
  for (const ModelDims& sizes :
       {llama_of(100'000, max_size, max_size, max_size), llama_of(1, max_size, 16, max_size),
        llama_of(100'000, int64_t{1} << 20, int64_t{1} << 20, 64),
        llama_of(1, highest / 32 * 32, highest, max_size)}) {
    const std::string message = message_of([&] { (void)make_model(sizes); });
    EXPECT_NE(
        message.find(fmt::format("layers = {}: with hidden = {}", sizes.layers, sizes.hidden)),
        std::string::npos)
        << message;
    EXPECT_NE(message.find("parameters; at most 1.13e+15"), std::string::npos) << message;
  }
  // Just below: 9e14 parameters in 800 layers.
  const ModelDims large = llama_of(800, 1 << 18, 1 << 20, 256'000);
  EXPECT_NEAR(static_cast<double>(parameter_count(make_model(large))), estimated_parameters(large),
              1e-5 * estimated_parameters(large));  // norms: some widths of a quarter million
}

TEST(ModelTest, estimated_parameters_are_those_of_small_models_to_within_vectors) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    ModelDims sizes = llama_of(3, 512, 2048, 1000);
    sizes.family = family;
    sizes.max_seq = 128;
    const auto counted = static_cast<double>(parameter_count(make_model(sizes)));
    // Biases and norms: some ten widths beside matrices of 512 rows.
    EXPECT_NEAR(estimated_parameters(sizes), counted, 0.01 * counted);
  }
}

TEST(PlanTest, batches_whose_products_pass_the_limit_are_refused) {
  const ModelSpec model = make_model(llama_of(1'000, 1 << 14, 1 << 16, int64_t{1} << 30));
  for (const int microbatches : {1, 8}) {
    const std::string message = message_of([&] {
      (void)solve_or_throw(
          model, {.seq_len = int64_t{1} << 24},
          {.micro_batch = microbatches == 1 ? 127 : 1, .accumulation = microbatches},
          cpu_backend());
    });
    EXPECT_NE(message.find("activations in a step; at most 7.21e+16"), std::string::npos)
        << message;
  }
}

TEST(ModelTest, parameter_counts_are_the_published_ones) {
  EXPECT_EQ(parameter_count(make_model({.family = Family::gpt2,
                                        .layers = 12,
                                        .hidden = 768,
                                        .heads = 12,
                                        .ffn = 3072,
                                        .vocab = 50257,
                                        .max_seq = 1024})),
            124439808);
  EXPECT_EQ(parameter_count(make_model({.family = Family::llama,
                                        .layers = 80,
                                        .hidden = 8192,
                                        .heads = 64,
                                        .kv_heads = 8,
                                        .ffn = 28672,
                                        .vocab = 128256,
                                        .max_seq = 8192,
                                        .tied_head = false})),
            70553706496);
}

// 2 + 4 + 12 bytes per parameter with fp32 gradients, 16 with bf16 ones, and 16 in fp32; up to
// padding.
TEST(PredictTest, state_is_18_or_16_bytes_per_parameter) {
  const ModelSpec model = make_model({.family = Family::llama,
                                      .layers = 4,
                                      .hidden = 256,
                                      .heads = 4,
                                      .ffn = 1024,
                                      .vocab = 1024,
                                      .max_seq = 64,
                                      .tied_head = false});
  const auto state = [&model](const char* name, base::DType grad) {
    const Plan plan = solve_or_throw(
        model, {.seq_len = 64},
        {.accumulation = 2, .precision = *precision_from_name(name), .grad_dtype = grad}, {});
    const MemoryTable& m = plan.predicted.memory.front();
    const int64_t tables = base::bytes_of(rope_table_spec(model, 64));
    return static_cast<double>(m.params + m.grads + m.optim - tables) /
           static_cast<double>(parameter_count(model));
  };
  EXPECT_NEAR(state("bf16", base::DType::f32), 18, 0.01);
  EXPECT_NEAR(state("bf16", base::DType::bf16), 16, 0.01);
  EXPECT_NEAR(state("fp32", base::DType::f32), 16, 0.01);
}

TEST(PredictTest, full_recompute_costs_about_one_forward_of_the_blocks) {
  const ModelSpec model = make_model({.family = Family::llama,
                                      .layers = 24,
                                      .hidden = 512,
                                      .heads = 8,
                                      .ffn = 2048,
                                      .vocab = 128,
                                      .max_seq = 256});
  const auto flops = [&model](Recompute recompute) {
    return solve_or_throw(model, {.seq_len = 256}, {.recompute = recompute}, {}).predicted;
  };
  const Prediction full = flops(Recompute::full);
  // The down projection of the forward is not needed again, so a little less than a third.
  EXPECT_GT(full.hardware_flops / full.model_flops, 1.22);
  EXPECT_LT(full.hardware_flops / full.model_flops, 4.0 / 3);
  EXPECT_EQ(flops(Recompute::none).hardware_flops, full.model_flops);
}

TEST(RopeTest, llama_3_keeps_fast_frequencies_and_stretches_slow_ones) {
  const RopeSpec plain{.theta = 500000};
  RopeSpec stretched = plain;
  stretched.scaling = RopeScaling{8, 1, 4, 8192};
  const auto a = rope_frequencies(plain, 128), b = rope_frequencies(stretched, 128);
  int fast = 0, between = 0, slow = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / a[i];
    if (wavelength < 8192.0 / 4) {
      ++fast;
      EXPECT_EQ(a[i], b[i]);
    } else if (wavelength > 8192.0) {
      ++slow;
      EXPECT_DOUBLE_EQ(b[i], a[i] / 8);
    } else {
      // The mean of both, by where 8192 / wavelength lies between 1 and 4.
      ++between;
      const double share = (8192 / wavelength - 1) / 3;
      EXPECT_NEAR(b[i], a[i] * (share + (1 - share) / 8), a[i] * 1e-6);
    }
  }
  EXPECT_GT(fast, 0);
  EXPECT_GT(between, 0);
  EXPECT_GT(slow, 0);
}

}  // namespace
}  // namespace trireme::spec
