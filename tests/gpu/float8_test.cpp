// SPDX-License-Identifier: Apache-2.0
// Products in 8 bits on a GPU, of dense blocks and of experts: gradients of the CPU, the same bits
// again, captured or not and under recompute, and the memory that is predicted.
#include <cmath>

#include "tests/gpu/gpu_rig.h"

namespace trireme::tests {
namespace {

using Float8Test = GpuTest;
using spec::Recompute;

// Sizes that all recipes support, with an even and an odd number of tiles.
std::vector<Trial> coded_trials() {
  std::vector<Trial> trials;
  for (spec::ModelDims dims : {medium_llama(), medium_moe()}) {
    dims.ffn = 768;
    for (const char* recipe : {"fp8-tensor", "fp8-block", "fp8-delayed"}) {
      trials.push_back({.dims = dims, .recipe = recipe, .seq_len = 192, .microbatches = 2});
    }
  }
  return trials;
}

std::string coded_sha(const Trial& trial) {
  DeviceRig rig(Where::gpu, trial);
  rig.train(4, 1e-3);
  return rig.engine->weights_sha256();
}

TEST_F(Float8Test, gradients_are_those_of_the_cpu) {
  for (const Trial& trial : coded_trials()) {
    const std::string what = trial.dims.name + " " + trial.recipe;
    DeviceRig cpu(Where::cpu, trial), gpu(Where::gpu, trial);
    cpu.train(1, 0.0);
    gpu.train(1, 0.0);
    const double loss = cpu.engine->report().mean_loss;
    EXPECT_NEAR(gpu.engine->report().mean_loss, loss, 1e-3 * loss) << what;
    double dot = 0, aa = 0, bb = 0;
    const std::vector<NamedValues> a = grads_of(*gpu.engine), b = grads_of(*cpu.engine);
    for (size_t i = 0; i < a.size(); ++i) {
      for (size_t e = 0; e < a[i].values.size(); ++e) {
        const auto x = static_cast<double>(a[i].values[e]);
        const auto y = static_cast<double>(b[i].values[e]);
        dot += x * y;
        aa += x * x;
        bb += y * y;
      }
    }
    // Where roundings to bf16 differ, codes do, by steps of up to a quarter.
    EXPECT_GT(dot / std::sqrt(aa * bb), 0.995) << what;
  }
}

TEST_F(Float8Test, bits_are_the_same_again_captured_or_not_and_under_recompute) {
  for (Trial trial : coded_trials()) {
    const std::string what = trial.dims.name + " " + trial.recipe;
    const std::string expected = coded_sha(trial);
    EXPECT_EQ(coded_sha(trial), expected) << what;
    trial.engine.capture = false;
    EXPECT_EQ(coded_sha(trial), expected) << what << ", not captured";
    trial.engine.capture = true;
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      trial.recompute = recompute;
      EXPECT_EQ(coded_sha(trial), expected) << what << " " << spec::name_of(recompute);
    }
  }
}

TEST_F(Float8Test, memory_is_what_was_predicted) {
  for (const Trial& trial : coded_trials()) {
    DeviceRig rig(Where::gpu, trial);
    rig.train(2, 1e-3);
    EXPECT_EQ(rig.engine->predicted_memory(), rig.engine->measured())
        << trial.dims.name << " " << trial.recipe;
  }
}

}  // namespace
}  // namespace trireme::tests
