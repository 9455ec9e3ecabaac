// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "base/float16.h"
#include "kernels/ops.h"
#include "kernels/step_control.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::optimizer_test {
namespace {

// Sums of a step whose gradient of the mean loss has this norm.
StepSums sums_with(double norm, int64_t tokens = 4, double loss = 10) {
  StepSums sums = {};
  sums.loss = loss;
  sums.tokens = tokens;
  const double total = norm * static_cast<double>(tokens);
  add_block_sum(sums.squares, total * total);
  return sums;
}

// A state after `applied` steps with this running mean and variance of the norm.
StepState state_after(int64_t applied, double mean = 0, double variance = 0) {
  StepState state = {};
  state.learning_rate = 0.01F;
  state.applied = applied;
  state.norm_mean = mean;
  state.norm_variance = variance;
  return state;
}

struct Closed {
  StepSums sums;
  StepState state;
};

Closed close(Stream& stream, const StepSums& sums, const StepState& state,
             const StepControlArgs& rule = {.sums = {}, .state = {}}) {
  Operands operands(1);
  StepControlArgs args = rule;
  args.sums = operands.sums(sums);
  args.state = operands.state(state);
  ops::step_control(stream, args);
  stream.synchronize();
  Closed closed;
  std::memcpy(&closed.sums, args.sums.data, sizeof closed.sums);
  std::memcpy(&closed.state, args.state.data, sizeof closed.state);
  return closed;
}

TEST(StepControlTest, a_norm_within_the_limit_is_not_clipped) {
  for_each_table([](Stream& stream) {
    const Closed c = close(stream, sums_with(0.5), state_after(0));
    EXPECT_EQ(c.state.skip, 0);
    EXPECT_FLOAT_EQ(c.state.grad_norm, 0.5F);
    EXPECT_FLOAT_EQ(c.state.grad_scale, 0.25F);
    EXPECT_FLOAT_EQ(c.state.clip_limit, 1);
    EXPECT_DOUBLE_EQ(c.state.mean_loss, 2.5);
    EXPECT_EQ(c.state.tokens, 4);
    EXPECT_EQ(c.state.applied, 1);
    EXPECT_EQ(c.state.learning_rate, 0.01F);
  });
}

TEST(StepControlTest, sums_are_zeroed) {
  for_each_table([](Stream& stream) {
    const StepSums zero = {};
    for (const double norm : {0.5, 1e17, 1e30}) {  // the first is applied, the others are skipped
      const Closed c = close(stream, sums_with(norm), state_after(100, 1));
      EXPECT_EQ(std::memcmp(&c.sums, &zero, sizeof zero), 0);
    }
  });
}

TEST(StepControlTest, fixed_clipping_brings_the_norm_to_the_limit) {
  for_each_table([](Stream& stream) {
    StepControlArgs rule{.sums = {}, .state = {}, .clip = ClipKind::fixed, .clip_norm = 0.5F};
    Closed c = close(stream, sums_with(8), state_after(0), rule);
    EXPECT_FLOAT_EQ(c.state.grad_scale, 0.25F * 0.5F / 8);
    EXPECT_FLOAT_EQ(c.state.grad_norm, 8);
    rule.clip = ClipKind::none;
    c = close(stream, sums_with(8), state_after(0), rule);
    EXPECT_FLOAT_EQ(c.state.grad_scale, 0.25F);
    EXPECT_EQ(c.state.clip_limit, std::numeric_limits<float>::infinity());
  });
}

TEST(StepControlTest, the_adaptive_limit_follows_mean_and_deviation_after_warm_up) {
  for_each_table([](Stream& stream) {
    const StepControlArgs rule{.sums = {}, .state = {}, .clip = ClipKind::adaptive, .clip_norm = 1};
    EXPECT_FLOAT_EQ(close(stream, sums_with(9), state_after(19, 2, 0.25), rule).state.clip_limit,
                    1);
    const Closed c = close(stream, sums_with(9), state_after(20, 2, 0.25), rule);
    EXPECT_FLOAT_EQ(c.state.clip_limit, 4);  // 2 + 4 * 0.5
    EXPECT_FLOAT_EQ(c.state.grad_scale, 0.25F * 4 / 9);
    EXPECT_FLOAT_EQ(close(stream, sums_with(1), state_after(20, 0.1, 0), rule).state.clip_limit, 1);
  });
}

TEST(StepControlTest, a_norm_that_is_not_finite_is_skipped) {
  for_each_table([](Stream& stream) {
    for (const int64_t applied : {0, 100}) {
      StepSums sums = sums_with(1);
      add_block_sum(sums.squares, std::numeric_limits<double>::quiet_NaN());
      StepState before = state_after(applied, 3, 0.5);
      before.skipped = 5;
      before.skipped_in_a_row = 2;
      StepControlArgs rule{.sums = {}, .state = {}};
      rule.guard_multiple = 0;
      const StepState after = close(stream, sums, before, rule).state;
      EXPECT_EQ(after.skip, 1);
      EXPECT_EQ(after.grad_norm, std::numeric_limits<float>::infinity());
      EXPECT_EQ(after.grad_scale, 0);
      EXPECT_EQ(after.applied, applied);
      EXPECT_EQ(after.skipped, 6);
      EXPECT_EQ(after.skipped_in_a_row, 3);
      EXPECT_EQ(after.norm_mean, 3);
      EXPECT_EQ(after.norm_variance, 0.5);
    }
  });
}

TEST(StepControlTest, a_norm_far_above_the_mean_is_skipped_after_warm_up_only) {
  for_each_table([](Stream& stream) {
    EXPECT_EQ(close(stream, sums_with(41), state_after(19, 2)).state.skip, 0);
    EXPECT_EQ(close(stream, sums_with(41), state_after(20, 2)).state.skip, 1);
    EXPECT_EQ(close(stream, sums_with(39), state_after(20, 2)).state.skip, 0);
    StepControlArgs rule{.sums = {}, .state = {}};
    rule.guard_multiple = 0;
    EXPECT_EQ(close(stream, sums_with(41), state_after(20, 2), rule).state.skip, 0);
    rule.guard_multiple = 3;
    rule.guard_warmup = 1;
    EXPECT_EQ(close(stream, sums_with(7), state_after(1, 2), rule).state.skip, 1);
  });
}

// A bad batch lasts one step, a bad state many, and skipping the steps that would repair it
// preserves it.
TEST(StepControlTest, after_consecutive_skipped_steps_a_finite_one_is_applied_clipped) {
  for_each_table([](Stream& stream) {
    StepState state = state_after(50, 2);
    StepControlArgs rule{.sums = {}, .state = {}};
    rule.skip_row = 3;
    for (int i = 0; i < 3; ++i) {
      state = close(stream, sums_with(100 + i), state, rule).state;
      EXPECT_EQ(state.skip, 1);
      EXPECT_EQ(state.row_first, 51);
      EXPECT_DOUBLE_EQ(state.row_norm, 100);
      EXPECT_DOUBLE_EQ(state.row_mean, 2);
    }
    const StepState taken = close(stream, sums_with(100), state, rule).state;
    EXPECT_EQ(taken.skip, 0);
    EXPECT_EQ(taken.skipped_in_a_row, 0);
    EXPECT_EQ(taken.row_first, 51);
    EXPECT_FLOAT_EQ(taken.grad_scale, 0.25F / 100);  // the limit is clip_norm = 1
    rule.clip = ClipKind::none;
    EXPECT_FLOAT_EQ(close(stream, sums_with(100), state, rule).state.clip_limit, 40);
    // A norm that is not finite is always skipped.
    StepSums infinite = sums_with(1);
    add_block_sum(infinite.squares, std::numeric_limits<double>::infinity());
    EXPECT_EQ(close(stream, infinite, state, rule).state.skip, 1);
    rule.skip_row = 0;
    EXPECT_EQ(close(stream, sums_with(100), state, rule).state.skip, 1);
  });
}

TEST(StepControlTest, a_step_without_tokens_is_skipped) {
  for_each_table([](Stream& stream) {
    const StepState after = close(stream, {}, state_after(3, 1)).state;
    EXPECT_EQ(after.skip, 1);
    EXPECT_EQ(after.tokens, 0);
    EXPECT_EQ(after.mean_loss, 0);
    EXPECT_EQ(after.grad_norm, 0);
    EXPECT_EQ(after.applied, 3);
  });
}

TEST(StepControlTest, running_mean_and_variance_start_at_the_first_norm_and_decay) {
  for_each_table([](Stream& stream) {
    StepControlArgs rule{.sums = {}, .state = {}};
    rule.norm_decay = 0.75F;
    StepState state = state_after(0, 123, 456);  // earlier values are ignored
    state.skipped_in_a_row = 4;
    state = close(stream, sums_with(2), state, rule).state;
    EXPECT_DOUBLE_EQ(state.norm_mean, 2);
    EXPECT_EQ(state.norm_variance, 0);
    EXPECT_EQ(state.skipped_in_a_row, 0);
    state = close(stream, sums_with(6), state, rule).state;
    // Weights 3/4 and 1/4 on the values 2 and 6: mean 3, variance 3/4 * 1 + 1/4 * 9.
    EXPECT_DOUBLE_EQ(state.norm_mean, 3);
    EXPECT_DOUBLE_EQ(state.norm_variance, 3);
    EXPECT_EQ(state.applied, 2);
  });
}

TEST(StepControlTest, a_zero_gradient_is_applied) {
  for_each_table([](Stream& stream) {
    const StepState after = close(stream, sums_with(0), state_after(0)).state;
    EXPECT_EQ(after.skip, 0);
    EXPECT_FLOAT_EQ(after.grad_scale, 0.25F);
  });
}

// What an aborted collective has left in the sums is not looked at.
TEST(StepControlTest, a_step_of_aborted_ranks_changes_nothing_but_skip) {
  for_each_machine([](Machine& machine) {
    Operands operands(1, machine);
    StepSums sums = sums_with(0.5);
    sums.overflow = 7;
    for (const int32_t before :
         {StepSkip::none, StepSkip::step, StepSkip::closed, StepSkip::torn}) {
      StepState state = state_after(50, 2, 0.5);
      state.skip = before;
      StepControlArgs args{.sums = operands.sums(sums), .state = operands.state(state)};
      args.abort_flag = operands.integers({1});
      ops::step_control(*machine.stream, args);
      machine.stream->synchronize();
      state.skip = before == StepSkip::torn ? StepSkip::torn : StepSkip::closed;
      EXPECT_EQ(std::memcmp(args.state.data, &state, sizeof state), 0);
      args.abort_flag = operands.integers({0});
      ops::step_control(*machine.stream, args);
      machine.stream->synchronize();
      StepState after = {};
      std::memcpy(&after, args.state.data, sizeof after);
      EXPECT_EQ(after.overflow, 7);
      // Another rank was aborted.
      StepSums marked = sums_with(0.5);
      marked.unlike = StepSums::aborted;
      args.sums = operands.sums(marked);
      state = after;
      args.state = operands.state(state);
      ops::step_control(*machine.stream, args);
      machine.stream->synchronize();
      state.skip = StepSkip::closed;
      EXPECT_EQ(std::memcmp(args.state.data, &state, sizeof state), 0);
    }
  });
}

TEST(GateTest, it_closes_from_the_threshold_on_and_never_opens) {
  struct Case {
    int32_t flag, threshold, before, value, after;
  };
  for_each_machine([](Machine& machine) {
    Operands operands(1, machine);
    for (const Case& c : {Case{0, 1, 0, 3, 0}, Case{1, 1, 0, 3, 3}, Case{2, 3, 1, 3, 1},
                          Case{4, 3, 1, 3, 3}, Case{1, 1, 3, 2, 3}}) {
      StepState state = state_after(1);
      state.skip = c.before;
      const Tensor at = operands.state(state);
      const Tensor cell = device::view_of(at.data + offsetof(StepState, skip), {{1}, DType::i32});
      ops::gate(*machine.stream, {.flag = operands.integers({c.flag}),
                                  .threshold = c.threshold,
                                  .cell = cell,
                                  .value = c.value});
      machine.stream->synchronize();
      state.skip = c.after;
      EXPECT_EQ(std::memcmp(at.data, &state, sizeof state), 0) << c.flag << " " << c.threshold;
    }
  });
}

// Every branch of the rule, with numbers that need rounding. The state has the reference's bits.
TEST(StepControlTest, cuda_has_the_bits_of_the_reference) {
  std::vector<Case> list;
  for (const double norm : {0.0, 0.3, 1.7, 9.1, 77.7, 1e17, 1e30}) {
    for (const ClipKind clip : {ClipKind::none, ClipKind::fixed, ClipKind::adaptive}) {
      for (const int64_t applied : {0, 7, 19, 20, 1000}) {
        for (const int64_t tokens : {0, 1, 12345}) {
          const auto run = [=](Operands& operands, Stream& stream) {
            StepState state = state_after(applied, 1.1, 0.37);
            state.skipped = 2;
            state.skipped_in_a_row = 1;
            StepControlArgs args{.sums = {}, .state = {}, .clip = clip, .clip_norm = 0.7F};
            args.sums = operands.sums(sums_with(norm, tokens, 12.3));
            args.state = operands.state(state);
            ops::step_control(stream, args);
          };
          list.push_back({std::to_string(norm) + " after " + std::to_string(applied), run});
        }
      }
    }
  }
  expect_cuda_agrees(list);
}

// A change of about 0.01 is the difference of two fp32 weights of about 1, which are rounded to
// 6e-8.
constexpr double change_tolerance = 1e-4;

void adamw(int64_t elements, DType dtype, DType grad_dtype, Operands& operands, Stream& stream) {
  StepState state = state_after(3);
  state.grad_scale = 0.125F;
  AdamwArgs args;
  args.param = operands.updated({elements}, {.dtype = dtype});
  if (dtype != DType::f32) args.master = operands.updated({elements});
  args.m = operands.updated({elements}, {.size = 0.1F});
  args.v = operands.updated({elements}, {.size = 0.1F});
  auto* v = reinterpret_cast<float*>(args.v.data);
  for (int64_t i = 0; i < elements; ++i) v[i] = std::abs(v[i]);
  args.grad = operands.input({elements}, {.dtype = grad_dtype});
  args.state = operands.state(state);
  // Most of the elements; the first block is left out if there is another.
  args.changes = {.sum = operands.squares({}, change_tolerance),
                  .begin = elements > WideSum::block_elements ? WideSum::block_elements : 0,
                  .end = elements};
  ops::adamw(stream, args);
}

std::vector<Case> adamw_cases() {
  std::vector<Case> list;
  for (const int64_t elements : {1, 7, 65, 1000, 20001}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const DType grad_dtype : {DType::f32, DType::bf16}) {
        if (dtype == DType::f16 && grad_dtype == DType::bf16) continue;
        list.push_back({std::to_string(elements) + " elements",
                        [=](Operands& o, Stream& s) { adamw(elements, dtype, grad_dtype, o, s); }});
      }
    }
  }
  return list;
}

// Many blocks, with and without a partial last vector; and elements from the second on, which are
// not aligned to vectors.
std::vector<Case> large_adamw_cases() {
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType grad_dtype : {DType::f32, DType::bf16}) {
      if (dtype == DType::f16 && grad_dtype == DType::bf16) continue;
      for (const int64_t elements : {1 << 18, 1200003}) {
        if (elements > 1000000 && dtype == grad_dtype) continue;  // for time
        list.push_back({std::to_string(elements) + " elements",
                        [=](Operands& o, Stream& s) { adamw(elements, dtype, grad_dtype, o, s); }});
      }
      list.push_back({"unaligned", [=](Operands& operands, Stream& stream) {
                        StepState state = state_after(7);
                        state.grad_scale = 0.5F;
                        const auto part = [](const Tensor& t) { return t.slice_rows(1, 1000); };
                        AdamwArgs args;
                        args.param = part(operands.updated({1001}, {.dtype = dtype}));
                        if (dtype != DType::f32) args.master = part(operands.updated({1001}));
                        args.m = part(operands.updated({1001}));
                        const Tensor v = operands.updated({1001}, {.size = 0.1F});
                        auto* values = reinterpret_cast<float*>(v.data);
                        for (int64_t i = 0; i < 1001; ++i) values[i] = std::abs(values[i]);
                        args.v = part(v);
                        args.grad = part(operands.input({1001}, {.dtype = grad_dtype}));
                        args.state = operands.state(state);
                        args.changes = {.sum = operands.squares({}, change_tolerance),
                                        .begin = 256,
                                        .end = 640};
                        ops::adamw(stream, args);
                      }});
    }
  }
  return list;
}

TEST(AdamwTest, cuda_agrees_with_the_reference) {
  expect_cuda_agrees(adamw_cases());
  expect_cuda_agrees(large_adamw_cases());
}

TEST(AdamwTest, cuda_changes_nothing_in_a_skipped_step) {
  const auto run = [](Operands& operands, Stream& stream) {
    StepState state = state_after(2);
    state.skip = 1;
    AdamwArgs args;
    args.param = operands.input({1000}, {.dtype = DType::bf16});
    args.master = operands.input({1000});
    args.m = operands.input({1000});
    args.v = operands.input({1000});
    args.grad = operands.input({1000});
    args.state = operands.state(state);
    ops::adamw(stream, args);
  };
  expect_cuda_agrees({{"all are inputs", run}});
}

// Parts of the elements, counted one after the other, add up to the whole; a skipped step changes
// nothing.
TEST(AdamwTest, changes_are_counted_where_they_are_asked_for) {
  constexpr int64_t n = 20001, block = WideSum::block_elements;
  for_each_machine([](Machine& machine) {
    Operands operands(3, machine);
    StepState state = state_after(1);
    state.grad_scale = 1;
    const Tensor start = operands.input({n}), grad = operands.input({n});
    const auto squares_of = [&](int64_t begin, int64_t end, int32_t skip) {
      state.skip = skip;
      AdamwArgs args;
      args.param = operands.updated({n});
      std::memcpy(args.param.data, start.data, static_cast<size_t>(start.bytes()));
      args.m = operands.updated({n}, {.size = 0});
      args.v = operands.updated({n}, {.size = 0});
      args.grad = grad;
      args.state = operands.state(state);
      args.changes = {operands.squares(), begin, end};
      ops::adamw(*machine.stream, args);
      machine.stream->synchronize();
      double expected = 0;
      for (int64_t i = begin; i < end; ++i) {
        const double change = static_cast<double>(reinterpret_cast<float*>(args.param.data)[i]) -
                              static_cast<double>(reinterpret_cast<float*>(start.data)[i]);
        expected += change * change;
      }
      const double found = to_double(*reinterpret_cast<WideSum*>(args.changes.sum.data));
      EXPECT_NEAR(found, expected, 1e-8 * expected);  // changes are rounded to fp32
      return found;
    };
    const double all = squares_of(0, n, 0);
    EXPECT_GT(all, 0);
    const double parts = squares_of(0, 3 * block, 0) + squares_of(3 * block, 100 * block, 0) +
                         squares_of(100 * block, n, 0);
    EXPECT_NEAR(parts, all, 1e-12 * all);
    EXPECT_EQ(squares_of(block, block, 0), 0);
    EXPECT_EQ(squares_of(0, n, 1), 0);
  });
}

TEST(AdamwTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(adamw_cases()); }

TEST(AdamwTest, bits_do_not_depend_on_threads) {
  expect_bits_do_not_depend_on_threads(adamw_cases());
}

// Ten steps against the textbook formula in double precision.
TEST(AdamwTest, several_steps_follow_the_formula) {
  constexpr int64_t n = 50;
  for_each_table([](Stream& stream) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Operands operands(2);
      StepState start = state_after(0);
      start.grad_scale = 0.5F;
      AdamwArgs args;
      args.param = operands.updated({n}, {.dtype = dtype});
      args.m = operands.updated({n}, {.size = 0});
      args.v = operands.updated({n}, {.size = 0});
      const Tensor state = operands.state(start);
      args.state = state;
      if (dtype != DType::f32) {
        args.master = operands.updated({n});
        ops::copy(stream, {.x = args.param, .d = args.master});
      }
      std::vector<double> p = values_of(args.param), m(n), v(n);
      const double lr = 0.01F, b1 = 0.9F, b2 = 0.95F, eps = 1e-8F, decay = 0.1F;
      for (int t = 1; t <= 10; ++t) {
        reinterpret_cast<StepState*>(state.data)->applied = t;
        args.grad = operands.input({n});
        ops::adamw(stream, args);
        const std::vector<double> grad = values_of(args.grad);
        for (size_t i = 0; i < n; ++i) {
          const double g = grad[i] * 0.5;
          m[i] = b1 * m[i] + (1 - b1) * g;
          v[i] = b2 * v[i] + (1 - b2) * g * g;
          const double m_hat = m[i] / (1 - std::pow(b1, t)), v_hat = v[i] / (1 - std::pow(b2, t));
          p[i] -= lr * (m_hat / (std::sqrt(v_hat) + eps) + decay * p[i]);
        }
      }
      const Tensor exact = dtype != DType::f32 ? args.master : args.param;
      const std::vector<double> found = values_of(exact), stored = values_of(args.param);
      for (size_t i = 0; i < n; ++i) {
        EXPECT_NEAR(found[i], p[i], 1e-5);  // ten roundings of values near one, 100 times margin
        EXPECT_NEAR(values_of(args.m)[i], m[i], 1e-6);
        EXPECT_NEAR(values_of(args.v)[i], v[i], 1e-6);
        const auto single = static_cast<float>(found[i]);
        if (dtype == DType::bf16) {
          EXPECT_EQ(stored[i], static_cast<double>(static_cast<float>(base::Bf16(single))));
        } else if (dtype == DType::f16) {
          EXPECT_EQ(stored[i], static_cast<double>(static_cast<float>(base::F16(single))));
        }
      }
    }
  });
}

TEST(AdamwTest, a_skipped_step_changes_no_bit) {
  for_each_table([](Stream& stream) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Operands operands(3);
      StepState state = state_after(2);
      state.skip = 1;
      AdamwArgs args;
      args.param = operands.input({200}, {.dtype = dtype});
      if (dtype != DType::f32) args.master = operands.input({200});
      args.m = operands.input({200});
      args.v = operands.input({200});
      args.grad = operands.input(
          {200}, {}, [](int64_t, int64_t) { return std::numeric_limits<double>::quiet_NaN(); });
      args.state = operands.state(state);
      ops::adamw(stream, args);
      operands.expect_intact();  // all are declared as inputs
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::optimizer_test
