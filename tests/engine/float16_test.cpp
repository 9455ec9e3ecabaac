// SPDX-License-Identifier: Apache-2.0
// Training in fp16 with a loss scale: it learns as fp32 does, gives the same bits for any number of
// threads, recompute policy and order of actions, and takes the memory that is predicted. A step
// whose gradient overflows lowers the scale and changes nothing else.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/rig.h"

namespace trireme::tests {
namespace {

using spec::Recompute;

RigOptions options_of(const spec::ModelDims& dims) { return {.dims = dims, .recipe = "fp16"}; }

std::string half_sha(const RigOptions& o, int steps) {
  Rig rig(o);
  rig.train(steps, 1e-3);
  return rig.engine.weights_sha256();
}

double loss_after(const RigOptions& o, int steps) {
  Rig rig(o);
  for (int i = 0; i < steps; ++i) rig.engine.step(rig.source, 3e-3);  // one batch, again and again
  EXPECT_EQ(rig.engine.report().skipped, 0);
  return rig.engine.report().mean_loss;
}

TEST(Float16Test, learns_a_batch_as_fp32_does) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama(), tiny_moe()}) {
    RigOptions o = options_of(dims);
    const double found = loss_after(o, 40);
    o.recipe = "fp32";
    const double expected = loss_after(o, 40);
    EXPECT_NEAR(found, expected, 0.01 * std::log(61.0)) << dims.name;
    EXPECT_LT(found, 0.8 * std::log(61.0)) << dims.name;
  }
}

TEST(Float16Test, recompute_threads_and_order_change_no_bit) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_qwen3(), tiny_shared_moe()}) {
    RigOptions o = options_of(dims);
    o.microbatches = 2;
    const std::string expected = half_sha(o, 4);
    o.threads = 3;
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      o.recompute = recompute;
      o.schedule.reset();
      EXPECT_EQ(half_sha(o, 4), expected) << dims.name << " " << spec::name_of(recompute);
      o.schedule = schedule::add_tied(schedule::split_backward(schedule::one_f_one_b(1, 2)));
      EXPECT_EQ(half_sha(o, 4), expected) << dims.name << " split backward";
    }
  }
}

TEST(Float16Test, memory_is_what_was_predicted) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_qwen3(), tiny_shared_moe()}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      RigOptions o = options_of(dims);
      o.recompute = recompute;
      o.microbatches = 2;
      Rig rig(o);
      rig.train(2, 1e-3);
      EXPECT_EQ(rig.engine.predicted_memory(), rig.engine.measured()) << dims.name;
    }
  }
}

// Gradients, norms and the norms of layers are those of the loss, whatever its scale is. The terms
// of routers have the scale, too.
TEST(Float16Test, the_scale_is_not_in_gradients_and_norms) {
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama(), tiny_moe()}) {
    RigOptions o = options_of(dims);
    o.engine.loss_scale.initial = 4096;
    Rig found(o), other(o);
    o.recipe = "fp32";
    Rig expected(o);
    for (Rig* rig : {&found, &expected}) rig->train(1, 0.0);
    other.engine.accumulate(other.source);
    const auto near = [](double a, double b) { return std::abs(a - b) <= 5e-3 * std::abs(b); };
    EXPECT_TRUE(near(static_cast<double>(found.engine.report().grad_norm),
                     static_cast<double>(expected.engine.report().grad_norm)));
    EXPECT_EQ(found.engine.report().loss_scale, 4096);
    const auto a = found.engine.drain_signals().back(), b = expected.engine.drain_signals().back();
    for (size_t i = 0; i < a.layer_grad_norms.size(); ++i) {
      EXPECT_TRUE(near(static_cast<double>(a.layer_grad_norms[i]),
                       static_cast<double>(b.layer_grad_norms[i])))
          << dims.name << " layer " << i;
    }
    for (const auto& param : found.engine.parameters()) {
      const std::vector<float> grads = found.engine.read_grads(param.name);
      EXPECT_EQ(grads, other.engine.read_grads(param.name)) << param.name;
      const std::vector<float> exact = expected.engine.read_grads(param.name);
      double error = 0, size = 0;
      for (size_t i = 0; i < grads.size(); ++i) {
        error += std::pow(static_cast<double>(grads[i] - exact[i]), 2);
        size += std::pow(static_cast<double>(exact[i]), 2);
      }
      // A bias of keys has no gradient but for rounding.
      EXPECT_LE(std::sqrt(error), 1e-2 * std::sqrt(size) + 1e-3) << dims.name << " " << param.name;
    }
  }
}

// A weight that is too large for fp16 makes the gradient overflow for one step.
void overflow_one_step(Rig& rig) {
  const std::string name = "blocks.0.down.weight";
  const std::vector<float> good = rig.engine.read_weights(name);
  std::vector<float> bad = good;
  bad[3] = 1e6F;
  rig.engine.write_weights(name, bad);
  rig.train(1, 1e-3);
  EXPECT_TRUE(rig.engine.report().was_skipped);
  rig.engine.write_weights(name, good);
}

TEST(Float16Test, an_overflow_lowers_the_scale_when_the_hysteresis_is_used_up) {
  for (const int hysteresis : {1, 2}) {
    RigOptions o = options_of(tiny_llama());
    o.engine.loss_scale.hysteresis = hysteresis;
    Rig found(o), expected(o);
    for (Rig* rig : {&found, &expected}) rig->train(2, 1e-3);
    for (int i = 1; i <= hysteresis; ++i) {
      overflow_one_step(found);
      const engine::StepReport report = found.engine.report();
      EXPECT_EQ(report.loss_scale, 65536);
      EXPECT_EQ(report.next_loss_scale, i == hysteresis ? 32768 : 65536);
      EXPECT_EQ(report.not_finite, i);
      EXPECT_EQ(report.skipped, i);
      // The other run does not compute that step, and has the same scale afterwards.
      expected.source.next_step();
      kernels::StepState state = expected.engine.step_state();
      state.skipped += 1;
      state.not_finite += 1;
      state.hysteresis_left -= 1;
      state.good_steps = 0;
      if (i == hysteresis) state.loss_scale /= 2;
      expected.engine.set_step_state(state);
    }
    for (Rig* rig : {&found, &expected}) rig->train(3, 1e-3);
    EXPECT_EQ(found.engine.report().loss_scale, 32768);
    EXPECT_EQ(found.engine.report().applied, 5);
    EXPECT_EQ(found.engine.weights_sha256(), expected.engine.weights_sha256()) << hysteresis;
  }
}

TEST(Float16Test, a_scale_that_is_too_large_finds_its_size) {
  RigOptions o = options_of(tiny_llama());
  o.engine.loss_scale.initial = 0x1p30F;
  o.engine.loss_scale.growth_interval = 5;
  Rig rig(o);
  rig.train(40, 1e-3);
  const engine::StepReport report = rig.engine.report();
  EXPECT_GT(report.not_finite, 2);
  EXPECT_GT(report.applied, 20);
  EXPECT_EQ(report.applied + report.skipped, 40);
  EXPECT_GE(report.loss_scale, 1024);
  EXPECT_LE(report.loss_scale, 0x1p28F);
}

TEST(Float16Test, a_fixed_scale_stays) {
  RigOptions o = options_of(tiny_llama());
  o.engine.loss_scale = {.fixed = 512, .growth_interval = 1};
  Rig rig(o);
  rig.train(2, 1e-3);
  overflow_one_step(rig);
  rig.train(1, 1e-3);
  EXPECT_EQ(rig.engine.report().loss_scale, 512);
  EXPECT_EQ(rig.engine.report().next_loss_scale, 512);
}

TEST(Float16Test, evaluation_has_no_scale) {
  RigOptions o = options_of(tiny_llama());
  Rig rig(o);
  const double loss = rig.engine.evaluate(rig.source).loss_sum;
  o.engine.loss_scale.fixed = 0x1p40F;
  Rig other(o);
  EXPECT_EQ(other.engine.evaluate(other.source).loss_sum, loss);
}

// What a checkpoint contains: the scale of the run, not of its options.
TEST(Float16Test, a_state_carries_its_scale) {
  RigOptions o = options_of(tiny_llama());
  o.engine.loss_scale.growth_interval = 3;
  Rig found(o);
  found.train(4, 1e-3);
  const kernels::StepState saved = found.engine.step_state();
  EXPECT_EQ(saved.loss_scale, 2 * 65536);
  EXPECT_EQ(saved.good_steps, 1);
  o.engine.loss_scale.initial = 64;
  Rig other(o);
  other.engine.set_step_state(saved);
  EXPECT_EQ(other.engine.step_state().loss_scale, 2 * 65536);
  // A state of a run without a loss scale has none.
  other.engine.set_step_state({});
  EXPECT_EQ(other.engine.step_state().loss_scale, 64);
  EXPECT_EQ(other.engine.step_state().hysteresis_left, 2);
}

}  // namespace
}  // namespace trireme::tests
