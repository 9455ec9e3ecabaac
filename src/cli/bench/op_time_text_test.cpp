// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/op_time_text.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

TEST(OpTimeText, columns_of_a_roofline_have_the_unit_of_their_largest_value) {
  const train::Roofline roofline{
      {{.name = "norm", .bytes = 3e6, .seconds = 6e-3},
       {.name = "gemm nt", .flops = 1e9, .bytes = 1000, .seconds = 2e-3}},
      {1e12, "given"},
      {1e9, "given"}};
  // 0.5 TFLOP/s of 1, and 0.5 GB/s of 1: no column is all zeros.
  for (const char* part : {"75.0 %", "TFLOP/s", " GB/s", "0.50", "MB"}) {
    EXPECT_NE(to_text(roofline).find(part), std::string::npos) << part << to_text(roofline);
  }
}

TEST(OpTimeText, times_are_means_over_the_steps) {
  const std::vector<train::OpTime> times = {
      {.name = "adamw 8x1x1", .seconds = 4e-3, .flops = 4e6, .bytes = 8e6, .count = 6}};
  EXPECT_EQ(to_text(times, 2),
            "    2.000 ms a step      3 x        1.0 GFLOP/s       2.0 GB/s  adamw 8x1x1\n");
}

}  // namespace
}  // namespace trireme::cli
