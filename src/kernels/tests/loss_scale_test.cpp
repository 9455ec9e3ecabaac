// SPDX-License-Identifier: Apache-2.0
// The loss scale: how step_control undoes it and moves it, and the factor of cross_entropy.
#include "kernels/loss_scale.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"
#include "kernels/wide_sum.h"

namespace trireme::kernels::loss_scale_test {
namespace {

constexpr float divisor = 64;

LossScaleRule rule_with(int32_t hysteresis) {
  return {.divisor = divisor, .growth_interval = 3, .hysteresis = hysteresis};
}

StepState state_with(float scale, int32_t hysteresis) {
  StepState state = {};
  state.loss_scale = scale;
  state.loss_factor = scale / divisor;
  state.hysteresis_left = hysteresis;
  return state;
}

// Closes a step of four tokens whose gradient, times the factor, has this norm.
StepState close(Stream& stream, const StepState& state, double scaled_norm,
                const LossScaleRule& rule, int64_t tokens = 4) {
  Operands operands(1);
  StepSums sums = {};
  sums.tokens = tokens;
  add_block_sum(sums.squares, scaled_norm * scaled_norm);
  StepControlArgs args{.sums = operands.sums(sums), .state = operands.state(state)};
  args.loss_scale = rule;
  ops::step_control(stream, args);
  stream.synchronize();
  StepState after;
  std::memcpy(&after, args.state.data, sizeof after);
  return after;
}

constexpr double not_finite = std::numeric_limits<double>::infinity();

TEST(LossScaleTest, step_control_undoes_the_factor) {
  for_each_table([](Stream& stream) {
    const StepState plain = close(stream, {}, 12, {});
    EXPECT_EQ(plain.grad_norm, 3);
    EXPECT_EQ(plain.step_scale, 0);
    EXPECT_EQ(plain.step_factor, 1);
    // 1024 / 64 = 16 times the gradient.
    const StepState scaled = close(stream, state_with(1024, 2), 12 * 16, rule_with(2));
    EXPECT_EQ(scaled.grad_norm, 3);
    EXPECT_EQ(scaled.grad_scale, plain.grad_scale / 16);
    EXPECT_EQ(scaled.norm_mean, plain.norm_mean);
    EXPECT_EQ(scaled.step_scale, 1024);
    EXPECT_EQ(scaled.step_factor, 16);
    EXPECT_EQ(scaled.applied, 1);
  });
}

TEST(LossScaleTest, it_falls_when_the_hysteresis_is_used_up) {
  for_each_table([](Stream& stream) {
    for (const int32_t hysteresis : {1, 2}) {
      const LossScaleRule rule = rule_with(hysteresis);
      StepState state = state_with(1024, hysteresis);
      for (int i = 1; i <= 4; ++i) {
        state = close(stream, state, not_finite, rule);
        const int falls = i - hysteresis + 1;
        EXPECT_EQ(state.loss_scale, falls > 0 ? 1024.0F / static_cast<float>(1 << falls) : 1024);
        EXPECT_EQ(state.loss_factor, state.loss_scale / divisor);
        EXPECT_EQ(state.skip, 1);
        EXPECT_EQ(state.skipped, i);
        EXPECT_EQ(state.not_finite, i);
        EXPECT_EQ(state.applied, 0);
      }
    }
  });
}

TEST(LossScaleTest, it_grows_after_an_interval_of_good_steps_which_refills_the_hysteresis) {
  for_each_table([](Stream& stream) {
    const LossScaleRule rule = rule_with(2);
    StepState state = close(stream, state_with(1024, 2), not_finite, rule);
    EXPECT_EQ(state.hysteresis_left, 1);
    state = close(stream, state, 1, rule);
    state = close(stream, state, 1, rule);
    EXPECT_EQ(state.good_steps, 2);
    EXPECT_EQ(state.loss_scale, 1024);
    state = close(stream, state, 1, rule);
    EXPECT_EQ(state.loss_scale, 2048);
    EXPECT_EQ(state.loss_factor, 2048 / divisor);
    EXPECT_EQ(state.step_scale, 1024);
    EXPECT_EQ(state.good_steps, 0);
    EXPECT_EQ(state.hysteresis_left, 2);
    // A step that is not finite begins the interval again.
    state = close(stream, close(stream, state, 1, rule), not_finite, rule);
    EXPECT_EQ(state.good_steps, 0);
    EXPECT_EQ(state.loss_scale, 2048);
  });
}

TEST(LossScaleTest, it_stays_within_its_limits) {
  for_each_table([](Stream& stream) {
    LossScaleRule rule = rule_with(1);
    rule.min = 4;
    rule.growth_interval = 1;
    StepState state = state_with(16, 1);
    for (int i = 0; i < 5; ++i) state = close(stream, state, not_finite, rule);
    EXPECT_EQ(state.loss_scale, 4);
    state = state_with(0x1p31F, 1);
    for (int i = 0; i < 3; ++i) state = close(stream, state, 1, rule);
    EXPECT_EQ(state.loss_scale, 0x1p32F);
  });
}

TEST(LossScaleTest, a_fixed_scale_and_a_step_without_tokens_change_nothing) {
  for_each_table([](Stream& stream) {
    LossScaleRule rule = rule_with(1);
    rule.growth_interval = 1;
    EXPECT_EQ(close(stream, state_with(512, 1), not_finite, rule, 0).loss_scale, 512);
    rule.is_fixed = true;
    const StepState state = close(stream, state_with(512, 1), not_finite, rule);
    EXPECT_EQ(state.loss_scale, 512);
    EXPECT_EQ(state.skip, 1);
    EXPECT_EQ(state.not_finite, 1);
    EXPECT_EQ(close(stream, state, 1, rule).loss_scale, 512);
  });
}

// An overflow of experts means that the step will be repeated.
TEST(LossScaleTest, a_step_that_was_not_run_changes_nothing) {
  for_each_table([](Stream& stream) {
    StepState state = state_with(512, 1);
    state.overflow = 1;
    state = close(stream, state, not_finite, rule_with(1));
    EXPECT_EQ(state.loss_scale, 512);
    EXPECT_EQ(state.not_finite, 0);
  });
}

// By a power of two, which changes no bit of f32 and bf16 but the exponent.
TEST(LossScaleTest, cross_entropy_multiplies_its_gradient) {
  constexpr int64_t T = 5, V = 40;
  for_each_machine([](Machine& machine) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const auto gradient = [&](bool is_whole, bool has_scale) {
        Operands operands(3, machine);
        const Tensor logits = operands.updated({T, V}, {.dtype = dtype});
        const Tensor labels = operands.integers({0, 39, -1, 7, 20});
        const Tensor stats = operands.scratch({T, 3}, DType::f32), sums = operands.sums();
        const Tensor scale = operands.input({1}, {}, [](int64_t, int64_t) { return 32; });
        const ConstTensor factor = has_scale ? ConstTensor(scale) : ConstTensor();
        if (is_whole) {
          CrossEntropyArgs args{.logits = logits, .labels = labels, .stats = stats, .sums = sums};
          args.scale = factor;
          ops::cross_entropy(*machine.stream, args);
        } else {
          ops::cross_entropy_stats(*machine.stream,
                                   {.logits = logits, .labels = labels, .stats = stats});
          CrossEntropyGradArgs args{
              .logits = logits, .stats = stats, .labels = labels, .sums = sums};
          args.scale = factor;
          ops::cross_entropy_grad(*machine.stream, args);
        }
        machine.stream->synchronize();
        return values_of(logits);
      };
      for (const bool is_whole : {false, true}) {
        const std::vector<double> plain = gradient(is_whole, false);
        const std::vector<double> scaled = gradient(is_whole, true);
        for (size_t i = 0; i < plain.size(); ++i) {
          // f16 has fewer bits below 2^-14.
          EXPECT_NEAR(scaled[i], 32 * plain[i], dtype == DType::f16 ? 0x1p-20 : 0) << i;
        }
      }
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::loss_scale_test
