// SPDX-License-Identifier: Apache-2.0
#include "plan/validate/fit_machine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/stack.h"
#include "plan/validate/minimise.h"

namespace trireme::plan {
namespace {

spec::Machine truth() {
  spec::Machine m;
  spec::Processor& p = m.processor;
  p.bf16_flops = 1000e12;
  p.bytes_per_second = 4e12;
  p.units = 132;
  p.gemm_reach = 0.73;
  p.gemm_ramp = 61;
  p.accumulate_factor = 1.12;
  p.attention_forward = 0.61;
  p.attention_backward = 0.47;
  p.attention_ramp = 530;
  p.attention_head = 0.35;
  p.attention_fixed_order = 0.45;
  p.memory_reach = 0.81;
  p.launch_seconds = 4.5e-6;
  m.domain = {.size = 8, .link = {.bytes_per_second = 350e9, .latency = 3e-6}, .reach = 1};
  return m;
}

// Returns the times of `m`, each row wrong by `noise`, up or down so that no constant explains it.
Times times_on(const spec::Machine& m, double noise) {
  Times times;
  int turn = 0;
  const auto wrong = [&] { return 1 + (turn++ * 37 % 101 % 2 == 0 ? noise : -noise); };
  for (const int64_t rows : {1024, 8192}) {
    for (const int64_t out : {768, 2304, 8192}) {
      for (const int64_t in : {512, 2048, 8192}) {
        for (const bool adds : {false, true}) {
          Product product{rows, out, in, 1, 2.0 * static_cast<double>(rows * in), adds};
          times.products.push_back({product, Precision::bf16,
                                    gemm_seconds(m.processor, product, Precision::bf16) * wrong()});
        }
      }
    }
  }
  for (const double bytes : {1e5, 1e6, 1e8, 1e9}) {
    times.streams.push_back({bytes, streaming_seconds(m.processor, bytes) * wrong()});
  }
  const auto add_attention = [&](bool backward, bool fixed_order) {
    for (const int64_t length : {512, 2048, 16384}) {
      for (const int64_t head : {64, 128}) {
        const Attention attention{
            {base::DType::bf16, 4, length, 32, 8, head}, backward, 1, fixed_order};
        times.attention.push_back(
            {attention, attention_seconds(m.processor, Stack{}, attention) * wrong()});
      }
    }
  };
  add_attention(false, false);
  add_attention(true, false);
  add_attention(true, true);
  for (const int64_t ranks : {2, 8}) {
    for (const double bytes : {1e3, 1e6, 1e9}) {
      TimedCollective row{Collective::all_reduce, {ranks, 1}, bytes, 0};
      row.seconds = collective_seconds(m, row.kind, row.group, bytes) * wrong();
      times.collectives.push_back(row);
    }
  }
  return times;
}

// Returns truth() with default constants.
spec::Machine beginning() {
  spec::Machine m = truth();
  const spec::Processor defaults;
  spec::Processor& p = m.processor;
  p.gemm_reach = defaults.gemm_reach;
  p.gemm_ramp = defaults.gemm_ramp;
  p.accumulate_factor = defaults.accumulate_factor;
  p.attention_forward = defaults.attention_forward;
  p.attention_backward = defaults.attention_backward;
  p.attention_ramp = defaults.attention_ramp;
  p.attention_head = defaults.attention_head;
  p.attention_fixed_order = defaults.attention_fixed_order;
  p.memory_reach = defaults.memory_reach;
  p.launch_seconds = defaults.launch_seconds;
  m.domain.link = {.bytes_per_second = 10e9, .latency = 50e-6};
  return m;
}

TEST(FitMachine, exact_times_recover_the_constants) {
  const spec::Machine wanted = truth();
  const spec::Machine found = fit_machine(beginning(), times_on(wanted, 0));
  const spec::Processor &p = found.processor, &q = wanted.processor;
  EXPECT_NEAR(p.gemm_reach, q.gemm_reach, 0.005);
  EXPECT_NEAR(p.gemm_ramp, q.gemm_ramp, 2);
  EXPECT_NEAR(p.accumulate_factor, q.accumulate_factor, 0.005);
  EXPECT_NEAR(p.memory_reach, q.memory_reach, 0.005);
  EXPECT_NEAR(p.launch_seconds, q.launch_seconds, 0.1e-6);
  EXPECT_NEAR(p.attention_forward, q.attention_forward, 0.005);
  EXPECT_NEAR(p.attention_backward, q.attention_backward, 0.005);
  EXPECT_NEAR(p.attention_ramp, q.attention_ramp, 10);
  EXPECT_NEAR(p.attention_head, q.attention_head, 0.01);
  EXPECT_NEAR(p.attention_fixed_order, q.attention_fixed_order, 0.01);
  EXPECT_NEAR(found.domain.link.bytes_per_second, 350e9, 2e9);
  EXPECT_NEAR(found.domain.link.latency, 3e-6, 0.05e-6);
  EXPECT_LT(found.residuals.gemm, 0.003);
  EXPECT_LT(found.residuals.attention, 0.003);
  EXPECT_LT(found.residuals.streaming, 0.01);
  EXPECT_LT(found.residuals.collective, 0.003);
  EXPECT_EQ(p.bf16_flops, q.bf16_flops);
}

TEST(FitMachine, residuals_equal_the_noise_of_the_times) {
  const spec::Machine found = fit_machine(beginning(), times_on(truth(), 0.1));
  EXPECT_NEAR(found.residuals.gemm, 0.1, 0.03);
  EXPECT_NEAR(found.residuals.attention, 0.1, 0.04);
  EXPECT_NEAR(found.processor.gemm_reach, truth().processor.gemm_reach, 0.1);
}

TEST(FitMachine, constants_without_times_stay_unchanged) {
  const spec::Machine start = beginning();
  Times times = times_on(truth(), 0);
  times.attention.clear();
  times.collectives.clear();
  times.streams.clear();
  std::erase_if(times.products, [](const TimedProduct& row) { return row.product.accumulates; });
  const spec::Machine found = fit_machine(start, times);
  EXPECT_EQ(found.processor.accumulate_factor, start.processor.accumulate_factor);
  EXPECT_EQ(found.processor.memory_reach, start.processor.memory_reach);
  EXPECT_EQ(found.processor.attention_forward, start.processor.attention_forward);
  EXPECT_EQ(found.domain.link.latency, start.domain.link.latency);
  EXPECT_EQ(found.residuals.attention, 0);
  EXPECT_NEAR(found.processor.gemm_reach, truth().processor.gemm_reach, 0.01);
  EXPECT_EQ(fit_machine(start, {}).processor.gemm_reach, start.processor.gemm_reach);
}

TEST(FitMachine, one_order_of_sums_does_not_show_what_the_other_costs) {
  const spec::Machine start = beginning();
  for (const bool fixed_order : {false, true}) {
    Times times = times_on(truth(), 0);
    std::erase_if(times.attention, [&](const TimedAttention& row) {
      return row.attention.backward && row.attention.fixed_order != fixed_order;
    });
    EXPECT_EQ(fit_machine(start, times).processor.attention_fixed_order,
              start.processor.attention_fixed_order);
  }
}

TEST(FitMachine, no_reach_is_above_one) {
  spec::Machine start = beginning();
  const Times times = times_on(truth(), 0);
  start.processor.bf16_flops /= 3;
  const spec::Machine found = fit_machine(start, times);
  EXPECT_LE(found.processor.gemm_reach, 1);
  EXPECT_NEAR(found.processor.gemm_reach, 1, 1e-6);
  EXPECT_LE(found.processor.attention_forward, 1);
  EXPECT_GT(found.residuals.gemm, 0.2);
}

TEST(Minimise, finds_the_minimum_of_a_curved_valley_and_of_a_corner) {
  const auto bent = [](const std::vector<double>& x) {
    return 100 * std::pow(x[1] - x[0] * x[0], 2) + std::pow(1 - x[0], 2);
  };
  const Minimum found = minimise(bent, {-1.2, 1}, 0.3);
  EXPECT_NEAR(found.at[0], 1, 1e-3);
  EXPECT_NEAR(found.at[1], 1, 1e-3);
  const auto corner = [](const std::vector<double>& x) {
    return std::abs(x[0] - 3) + std::abs(x[0] + x[1] - 1) + 2;
  };
  EXPECT_NEAR(minimise(corner, {0, 0}, 0.3).value, 2, 1e-6);
}

}  // namespace
}  // namespace trireme::plan
