// SPDX-License-Identifier: Apache-2.0
// Gradients over ranks equal those of one rank that runs all micro-batches; reading and writing by
// name; refused plans.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {
namespace {

std::map<std::string, std::vector<float>> grads_of(const Layout& layout, double& loss) {
  std::map<std::string, std::vector<float>> grads;
  run_layout(layout, [&](RankRig& rig) {
    rig.engine.accumulate(rig.source);
    for (const auto& param : rig.engine.parameters()) {
      const std::vector<float> values = rig.engine.read_grads(param.name);
      if (rig.mesh.world().rank() == 0) grads[param.name] = values;
    }
    rig.engine.apply(1e-3);
    if (rig.mesh.world().rank() == 0) loss = rig.engine.report().mean_loss;
  });
  return grads;
}

TEST(RanksTest, gradients_equal_those_of_one_worker_with_all_micro_batches) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama()}) {
    double expected_loss = 0, loss = 0;
    const auto expected =
        grads_of({.dims = dims, .logical_dp = 1, .microbatches = 24}, expected_loss);
    for (const Layout& layout :
         {Layout{.dims = dims, .logical_dp = 24}, Layout{.dims = dims, .dp = 4},
          Layout{.dims = dims, .dp = 2, .zero = 3, .stage = 3},
          Layout{.dims = dims, .zero = 4, .stage = 1, .logical_dp = 8, .microbatches = 3}}) {
      const auto found = grads_of(layout, loss);
      EXPECT_NEAR(loss, expected_loss, 1e-6);
      for (const auto& [name, values] : expected) {
        double error = 0, scale = 0;
        for (size_t i = 0; i < values.size(); ++i) {
          const double difference =
              static_cast<double>(values[i]) - static_cast<double>(found.at(name)[i]);
          error += difference * difference;
          scale += static_cast<double>(values[i]) * static_cast<double>(values[i]);
        }
        // The order of fp32 additions differs.
        EXPECT_LE(std::sqrt(error), 2e-6 * std::sqrt(scale) + 1e-12)
            << to_string(layout) << ": " << name;
      }
    }
  }
}

TEST(RanksTest, weights_are_read_and_written_whole_on_every_rank) {
  for (const int stage : {1, 2, 3}) {
    for (const char* recipe : {"fp32", "bf16"}) {
      const Layout layout{.dims = tiny_gpt2(),
                          .dp = 2,
                          .zero = 2,
                          .stage = stage,
                          .recipe = recipe,
                          .logical_dp = 4};
      run_layout(layout, [](RankRig& rig) {
        rig.engine.step(rig.source, 1e-3);
        for (const auto& param : rig.engine.parameters()) {
          std::vector<float> values = rig.engine.read_weights(param.name);
          for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 64);
          rig.engine.write_weights(param.name, values);
          EXPECT_EQ(rig.engine.read_weights(param.name), values) << param.name;
        }
        // Layers compute with the written weights: all ranks have the same loss of one batch.
        class Same final : public engine::MicrobatchSource {
         public:
          void fill(int, const engine::HostMicrobatch& out) override { all_.fill(0, out); }

         private:
          RandomSource all_{1, 61, 1, 6};
        } same;
        const double loss = rig.engine.evaluate(same).loss_sum;
        device::CpuDevice device(kernels::cpu_kernels(), {});
        engine::Engine one(device, rig.model,
                           spec::solve_or_throw(rig.model, {.seq_len = 6},
                                                {.precision = rig.engine.plan().layout.precision,
                                                 .grad_dtype = rig.engine.plan().layout.grad_dtype,
                                                 .head_chunk_rows = 4},
                                                {}),
                           {}, {});
        for (const auto& param : one.parameters()) {
          one.write_weights(param.name, rig.engine.read_weights(param.name));
        }
        EXPECT_EQ(loss, one.evaluate(same).loss_sum);
      });
    }
  }
}

TEST(RanksTest, a_plan_for_several_ranks_is_refused_on_one) {
  const spec::ModelSpec model = spec::make_model(tiny_llama());
  const spec::Plan plan = plan_of({.dims = tiny_llama(), .dp = 2}, model);
  device::CpuDevice device(kernels::cpu_kernels(), {});
  EXPECT_THROW(engine::Engine(device, model, plan, {}, {}), base::ConfigError);
}

TEST(RanksTest, sharded_gradients_need_a_merged_backward) {
  const Layout layout{
      .dims = tiny_llama(), .zero = 2, .stage = 2, .logical_dp = 2, .split_backward = true};
  EXPECT_THROW(run_layout(layout, [](RankRig&) {}), base::ConfigError);
}

TEST(RanksTest, a_step_that_is_not_finite_is_skipped_by_all_ranks) {
  for (const int stage : {0, 3}) {
    const Layout layout{.dims = tiny_llama(),
                        .dp = stage == 0 ? 4 : 1,
                        .zero = stage == 0 ? 1 : 4,
                        .stage = stage,
                        .logical_dp = 4};
    run_layout(layout, [](RankRig& rig) {
      rig.engine.step(rig.source, 1e-3);
      std::vector<float> values = rig.engine.read_weights("blocks.0.down.weight");
      values[0] = std::nanf("");
      rig.engine.write_weights("blocks.0.down.weight", values);
      const std::string before = rig.engine.weights_sha256();
      rig.engine.step(rig.source, 1e-3);
      EXPECT_TRUE(rig.engine.report().was_skipped);
      EXPECT_EQ(rig.engine.weights_sha256(), before);
    });
  }
}

}  // namespace
}  // namespace trireme::tests
