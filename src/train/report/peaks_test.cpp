// SPDX-License-Identifier: Apache-2.0
#include "train/report/peaks.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

using base::DType;

TEST(Peaks, known_gpus_have_dense_figures) {
  EXPECT_DOUBLE_EQ(datasheet_flops("NVIDIA H200", DType::bf16)->per_second, 989.4e12);
  EXPECT_DOUBLE_EQ(datasheet_flops("NVIDIA H200", DType::f32)->per_second, 66.9e12);
  EXPECT_DOUBLE_EQ(datasheet_flops("NVIDIA H100 PCIe", DType::bf16)->per_second, 756e12);
  EXPECT_DOUBLE_EQ(datasheet_flops("NVIDIA A100-SXM4-80GB", DType::bf16)->per_second, 312e12);
  EXPECT_DOUBLE_EQ(datasheet_bandwidth("NVIDIA H200")->per_second, 4.8e12);
}

TEST(Peaks, a_name_that_only_begins_alike_is_unknown) {
  for (const char* name : {"NVIDIA A10G", "NVIDIA L400", "NVIDIA H2000", "NVIDIA H100", "CPU"}) {
    EXPECT_FALSE(datasheet_flops(name, DType::bf16)) << name;
    EXPECT_FALSE(datasheet_bandwidth(name)) << name;
  }
  EXPECT_DOUBLE_EQ(datasheet_flops("NVIDIA H200 NVL", DType::bf16)->per_second, 835.5e12);
}

TEST(Peaks, what_is_given_goes_first) {
  EXPECT_EQ(known_flops(2, "NVIDIA H200", DType::bf16)->per_second, 2e12);
  EXPECT_EQ(known_flops(2, "NVIDIA H200", DType::bf16)->source, "given");
  EXPECT_DOUBLE_EQ(known_flops(0, "NVIDIA H200", DType::bf16)->per_second, 989.4e12);
  EXPECT_FALSE(known_flops(0, "CPU, 2 threads", DType::f32));
}

TEST(Peaks, the_cpu_is_measured) {
  Platform platform = make_platform({.device = "cpu", .threads = 1});
  const Peak peak = measure_flops(platform, DType::bf16);
  EXPECT_GT(peak.per_second, 1e8);
  EXPECT_EQ(peak.source, "measured fp32 GEMM");
  EXPECT_GT(measure_bandwidth(platform).per_second, 1e7);
  EXPECT_EQ(platform.device->ledger().live(), 0);
}

}  // namespace
}  // namespace trireme::train
