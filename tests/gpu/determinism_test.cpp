// SPDX-License-Identifier: Apache-2.0
// Same bits on the GPU: in repeated runs, captured or not, with any recompute. Captured steps read
// the batch and the learning rate of their step.
#include <cmath>

#include "tests/gpu/gpu_rig.h"

namespace trireme::tests {
namespace {

using DeterminismTest = GpuTest;
using CaptureTest = GpuTest;
using spec::Recompute;

std::string sha_after(const Trial& trial, int steps) {
  DeviceRig rig(Where::gpu, trial);
  rig.train(steps, 1e-3);
  return rig.engine->weights_sha256();
}

// cuDNN's standard backward repeats its bits at small shapes by chance: 1,024 tokens and several
// heads reveal its order of sums.
Trial long_trial(const std::string& recipe) {
  spec::ModelDims dims = medium_llama();
  dims.layers = 2;
  dims.heads = 8;
  dims.kv_heads = 2;
  return {.dims = dims, .recipe = recipe, .sequences = 4, .seq_len = 1024};
}

TEST_F(DeterminismTest, fifty_steps_repeat_their_bits_captured_or_not) {
  std::vector<Trial> trials;
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_qwen3(), tiny_shared_moe()}) {
    for (const char* recipe : {"fp32", "bf16"}) {
      trials.push_back({.dims = dims, .recipe = recipe, .microbatches = 2});
    }
  }
  trials.push_back({.dims = tiny_qwen3(), .recipe = "fp16", .microbatches = 2});
  trials.push_back(long_trial("fp16"));
  trials.push_back(long_trial("bf16"));
  trials.push_back(long_trial("fp32"));
  trials.back().sequences = 1;
  for (Trial trial : trials) {
    const std::string what = trial.dims.name + " " + trial.recipe;
    const std::string expected = sha_after(trial, 50);
    EXPECT_EQ(sha_after(trial, 50), expected) << what;
    trial.engine.capture = false;
    EXPECT_EQ(sha_after(trial, 50), expected) << what << ", not captured";
  }
}

TEST_F(DeterminismTest, recompute_changes_no_bit) {
  std::vector<Trial> trials;
  for (const spec::ModelDims& dims :
       {tiny_gpt2(), tiny_llama(), tiny_qwen3(), tiny_moe(), medium_llama(), medium_moe()}) {
    for (const char* recipe : {"fp32", "bf16"}) {
      trials.push_back({.dims = dims,
                        .recipe = recipe,
                        .seq_len = dims.max_seq > 16 ? 256 : 13,
                        .microbatches = 2});
    }
  }
  trials.push_back(long_trial("bf16"));
  trials.push_back(long_trial("fp16"));
  for (Trial trial : trials) {
    const std::string expected = sha_after(trial, 5);
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      trial.recompute = recompute;
      EXPECT_EQ(sha_after(trial, 5), expected)
          << trial.dims.name << " " << trial.recipe << " " << spec::name_of(recompute);
    }
  }
}

TEST_F(DeterminismTest, fast_mode_is_close) {
  Trial trial = long_trial("bf16");
  DeviceRig exact(Where::gpu, trial);
  exact.train(10, 1e-3);
  trial.deterministic = false;
  DeviceRig fast(Where::gpu, trial);
  fast.train(10, 1e-3);
  const double expected = exact.engine->report().mean_loss;
  EXPECT_NEAR(fast.engine->report().mean_loss, expected, 1e-3 * expected);
}

// Every step has another batch, so that a replay that reads an old batch is detected.
TEST_F(CaptureTest, a_replayed_step_reads_its_batch) {
  for (const char* recipe : {"fp32", "bf16"}) {
    Trial trial{.dims = medium_llama(), .recipe = recipe, .seq_len = 128};
    trial.engine.clip.guard_multiple = 0;
    DeviceRig captured(Where::gpu, trial);
    trial.engine.capture = false;
    DeviceRig eager(Where::gpu, trial);
    double before = 0;
    for (int step = 0; step < 6; ++step) {
      // A learning rate of zero in the odd steps: it must be read in every step, too.
      const double learning_rate = step % 2 == 0 ? 3e-3 : 0;
      const std::string weights = captured.engine->weights_sha256();
      captured.train(1, learning_rate);
      eager.train(1, learning_rate);
      const engine::StepReport a = captured.engine->report(), b = eager.engine->report();
      EXPECT_EQ(a.mean_loss, b.mean_loss) << "step " << step;
      EXPECT_EQ(a.grad_norm, b.grad_norm) << "step " << step;
      EXPECT_EQ(a.learning_rate, static_cast<float>(learning_rate)) << "step " << step;
      EXPECT_EQ(a.applied, step + 1);
      EXPECT_NE(a.mean_loss, before) << "step " << step << " read the batch of the previous step";
      EXPECT_EQ(captured.engine->weights_sha256() == weights, learning_rate == 0) << step;
      before = a.mean_loss;
    }
    EXPECT_TRUE(captured.engine->is_captured());
    EXPECT_FALSE(eager.engine->is_captured());
  }
}

// Evaluation between captured steps changes no state, and uses the current weights.
TEST_F(CaptureTest, evaluation_between_steps_changes_nothing) {
  const Trial trial{.dims = tiny_llama(), .microbatches = 2};
  DeviceRig plain(Where::gpu, trial), asked(Where::gpu, trial);
  double last = 0;
  for (int step = 0; step < 6; ++step) {
    plain.train(1, 1e-2);
    asked.train(1, 1e-2);
    const double loss = asked.engine->evaluate(asked.source).loss_sum;
    EXPECT_NE(loss, last);
    last = loss;
  }
  EXPECT_EQ(plain.engine->weights_sha256(), asked.engine->weights_sha256());
}

TEST_F(CaptureTest, written_weights_are_used_by_the_next_replay) {
  const Trial trial{.dims = tiny_llama()};
  DeviceRig rig(Where::gpu, trial);
  rig.train(3, 1e-3);
  std::vector<float> weights = rig.engine->read_weights("blocks.0.down.weight");
  weights[0] = std::nanf("");
  rig.engine->write_weights("blocks.0.down.weight", weights);
  rig.train(1, 1e-3);
  EXPECT_TRUE(rig.engine->report().was_skipped);
}

}  // namespace
}  // namespace trireme::tests
