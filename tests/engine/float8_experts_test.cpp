// SPDX-License-Identifier: Apache-2.0
// Experts whose products are in 8 bits: they learn as in bf16, give the same bits for any number of
// threads, recompute policy and order of actions, take the memory that is predicted, and equal a
// reference in fp64 that quantises the same rows.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/rig.h"

namespace trireme::tests {
namespace {

using spec::Recompute;

constexpr const char* expert_recipes[] = {"fp8-tensor", "fp8-block", "fp8-delayed"};

RigOptions experts_in(const std::string& recipe, const spec::ModelDims& dims) {
  const bool is_block = spec::recipe_from_name(recipe).fp8->grain() == spec::scale_block;
  RigOptions o{.dims = dims, .recipe = recipe};
  o.dims.hidden = is_block ? 128 : 32;
  o.dims.heads = o.dims.kv_heads = 4;
  o.dims.head_dim = o.dims.hidden / 4;
  if (o.dims.ffn > 0) o.dims.ffn = is_block ? 128 : 48;
  o.dims.moe->ffn = is_block ? 128 : 16;
  if (o.dims.moe->shared_ffn > 0) o.dims.moe->shared_ffn = is_block ? 128 : 32;
  o.dims.max_seq = o.seq_len = is_block ? 64 : 16;
  return o;
}

double experts_loss(const RigOptions& o, int steps) {
  Rig rig(o);
  for (int i = 0; i < steps; ++i) rig.engine.step(rig.source, 3e-3);  // one batch, again and again
  return rig.engine.report().mean_loss;
}

std::string experts_sha(const RigOptions& o) {
  Rig rig(o);
  rig.train(3, 1e-3);
  return rig.engine.weights_sha256();
}

TEST(Float8ExpertsTest, learn_a_batch_as_in_bf16) {
  for (const char* recipe : expert_recipes) {
    RigOptions o = experts_in(recipe, tiny_shared_moe());
    const double found = experts_loss(o, 30);
    o.recipe = "bf16";
    const double expected = experts_loss(o, 30);
    EXPECT_NEAR(found, expected, 0.05 * std::log(61.0)) << recipe;
    EXPECT_LT(found, 0.8 * std::log(61.0)) << recipe;
  }
}

TEST(Float8ExpertsTest, recompute_threads_and_order_change_no_bit) {
  for (const char* recipe : expert_recipes) {
    for (const spec::ModelDims& dims : {tiny_moe(), tiny_shared_moe()}) {
      RigOptions o = experts_in(recipe, dims);
      o.microbatches = 2;
      const std::string expected = experts_sha(o);
      o.threads = 3;
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        o.recompute = recompute;
        o.schedule.reset();
        EXPECT_EQ(experts_sha(o), expected)
            << recipe << " " << dims.name << " " << spec::name_of(recompute);
        o.schedule = schedule::add_tied(schedule::split_backward(schedule::one_f_one_b(1, 2)));
        EXPECT_EQ(experts_sha(o), expected) << recipe << " " << dims.name << " split backward";
      }
    }
  }
}

TEST(Float8ExpertsTest, memory_is_what_was_predicted) {
  for (const char* recipe : expert_recipes) {
    for (const spec::ModelDims& dims : {tiny_moe(), tiny_shared_moe()}) {
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        RigOptions o = experts_in(recipe, dims);
        o.recompute = recompute;
        Rig rig(o);
        rig.train(2, 1e-3);
        EXPECT_EQ(rig.engine.predicted_memory(), rig.engine.measured())
            << recipe << " " << dims.name << " " << spec::name_of(recompute);
        EXPECT_EQ(rig.engine.predicted_memory().scratch, rig.engine.measured().scratch);
        EXPECT_EQ(rig.engine.predicted_memory().stash(), rig.engine.measured().stash());
      }
    }
  }
}

// Kept rows have 1 byte a value instead of 2. (The groups of fp8-block are padded to 128 rows.)
TEST(Float8ExpertsTest, keep_less_than_in_bf16) {
  RigOptions o = experts_in("fp8-tensor", tiny_moe());
  const int64_t found = Rig(o).engine.predicted_memory().stash();
  o.recipe = "bf16";
  EXPECT_LT(static_cast<double>(found),
            0.9 * static_cast<double>(Rig(o).engine.predicted_memory().stash()));
}

double experts_cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double dot = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    dot += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    aa += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    bb += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return dot / std::sqrt(aa * bb);
}

TEST(Float8ExpertsTest, equal_a_reference_that_quantises_the_same_rows) {
  for (const char* recipe : expert_recipes) {
    RigOptions o = experts_in(recipe, tiny_shared_moe());
    Rig found(o);
    o.kernels = &kernels::reference_kernels();
    Rig expected(o);
    found.train(1, 0.0);
    expected.train(1, 0.0);
    const double loss = expected.engine.report().mean_loss;
    EXPECT_NEAR(found.engine.report().mean_loss, loss, 1e-4 * loss) << recipe;
    std::vector<float> all_found, all_expected;
    for (const auto& param : found.engine.parameters()) {
      const std::vector<float> a = found.engine.read_grads(param.name);
      const std::vector<float> b = expected.engine.read_grads(param.name);
      all_found.insert(all_found.end(), a.begin(), a.end());
      all_expected.insert(all_expected.end(), b.begin(), b.end());
    }
    EXPECT_GT(experts_cosine(all_found, all_expected), 0.999) << recipe;
  }
}

TEST(Float8ExpertsTest, numerics_are_those_of_the_rows) {
  RigOptions o = experts_in("fp8-tensor", tiny_moe());
  Rig rig(o);
  rig.engine.measure_numerics(true);
  rig.train(1, 1e-3);
  const int64_t pairs = o.sequences * o.seq_len * o.dims.moe->router.chosen;
  ASSERT_FALSE(rig.engine.numerics().empty());
  for (const engine::LayerNumerics& layer : rig.engine.numerics()) {
    const auto of = [&](spec::Quantized q) { return layer.by[static_cast<size_t>(q)]; };
    EXPECT_EQ(of(spec::Quantized::h2).values, pairs * o.dims.hidden);
    EXPECT_EQ(of(spec::Quantized::dup).values, pairs * 2 * o.dims.moe->ffn);
    EXPECT_EQ(of(spec::Quantized::up_weight).values,
              o.dims.moe->router.experts * 2 * o.dims.moe->ffn * o.dims.hidden);
    for (const engine::RoleNumerics& role : layer.by) {
      EXPECT_EQ(role.saturated, 0);
      EXPECT_GT(role.amax, 0);
      EXPECT_GT(10 * std::log10(role.signal / role.noise), 20);
    }
  }
}

}  // namespace
}  // namespace trireme::tests
