// SPDX-License-Identifier: Apache-2.0
#include "plan/calibrate/machine_peaks.h"

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

Times one_of_each() {
  Times times;
  times.products.push_back({.product = {.m = 100, .n = 100, .k = 50}, .seconds = 1e-3});
  times.streams.push_back({.bytes = 1e6, .seconds = 1e-3});
  return times;
}

TEST(MachinePeaks, stated_ones_stay_with_their_source) {
  spec::Machine m;
  const StatedPeaks stated{.bf16_flops = StatedPeak{1e12, "sheet"},
                           .bandwidth = StatedPeak{1e11, "sheet"}};
  start_peaks(stated, one_of_each(), m);
  m.processor.gemm_reach = 0.5;
  m.processor.memory_reach = 0.5;
  settle_peaks(stated, true, m);
  EXPECT_EQ(m.processor.bf16_flops, 1e12);
  EXPECT_EQ(m.processor.bytes_per_second, 1e11);
  EXPECT_EQ(m.processor.gemm_reach, 0.5);
  EXPECT_EQ(m.sources["processor.bf16_tflops"], "sheet");
}

TEST(MachinePeaks, others_become_what_the_fit_reaches) {
  spec::Machine m;
  start_peaks({}, one_of_each(), m);
  EXPECT_DOUBLE_EQ(m.processor.bf16_flops, 2e9);  // twice 1e6 FLOPs in 1e-3 s
  EXPECT_DOUBLE_EQ(m.processor.bytes_per_second, 2e9);
  m.processor.gemm_reach = 0.5;
  m.processor.memory_reach = 0.25;
  m.processor.attention_forward = 0.25;
  settle_peaks({}, false, m);
  EXPECT_DOUBLE_EQ(m.processor.bf16_flops, 1e9);
  EXPECT_DOUBLE_EQ(m.processor.fp32_flops, 1e9);
  EXPECT_DOUBLE_EQ(m.processor.attention_forward, 0.5);
  EXPECT_DOUBLE_EQ(m.processor.bytes_per_second, 5e8);
  EXPECT_EQ(m.processor.gemm_reach, 1);
  EXPECT_EQ(m.processor.memory_reach, 1);
}

}  // namespace
}  // namespace trireme::plan
