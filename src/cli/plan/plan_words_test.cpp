// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_words.h"

#include <gtest/gtest.h>

#include "spec/layout/layout_text.h"

namespace trireme::cli {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

TEST(PlanWords, memory_is_counted_as_nvidia_smi_does) {
  EXPECT_EQ(memory_text(79.07 * gib), "79.1 GiB");
  EXPECT_EQ(memory_text(1182.7 * gib), "1,182.7 GiB");
  EXPECT_EQ(memory_text(12.5 * gib / 1024), "12.5 MiB");
  EXPECT_EQ(memory_share_text(89.5 * gib, 79.1 * gib), "89.5 of 79.1 GiB");
  EXPECT_EQ(memory_share_text(gib / 1024, 2 * gib), "1.0 MiB of 2.0 GiB");
}

TEST(PlanWords, counts_have_three_digits_and_a_unit) {
  EXPECT_EQ(amount_text(70553706496), "70.6 B");
  EXPECT_EQ(amount_text(4194304), "4.19 M");
  EXPECT_EQ(amount_text(405.9e9), "406 B");
  EXPECT_EQ(amount_text(2e12), "2.00 T");
  EXPECT_EQ(amount_text(999'999'999), "1.00 B");
  EXPECT_EQ(amount_text(5e18), "5,000,000 T");
  EXPECT_EQ(amount_text(65536), "65,536");
}

TEST(PlanWords, a_run_has_days_hours_and_money) {
  plan::RunCost run;
  run.days = 20.83;
  run.gpu_hours = 512000;
  EXPECT_EQ(run_text(run), "20.8 days, 512,000 GPU-hours");
  run.dollars = 1.28e6;
  EXPECT_EQ(run_text(run), "20.8 days, 512,000 GPU-hours, 1.28 M$");
  EXPECT_EQ(price_text(run), " at 2.50 $/GPU-hour");
  run.dollars = 0;
  EXPECT_EQ(run_text(run) + price_text(run),
            "20.8 days, 512,000 GPU-hours, 0.00 $ at 0.00 $/GPU-hour");
  EXPECT_EQ(days_text(314.2), "314 days");
  EXPECT_EQ(days_text(1.5), "36.0 hours");
  EXPECT_EQ(days_text(1.0 / 24), "60.0 minutes");
  EXPECT_EQ(money_text(12800.4), "12,800 $");
  EXPECT_EQ(money_text(4.2), "4.20 $");
  EXPECT_EQ(money_text(999'600), "1.00 M$");
  EXPECT_EQ(money_text(2.5e9), "2.50 B$");
}

TEST(PlanWords, layouts_of_data_parallelism_alone_have_their_name) {
  const auto named = [](const char* text) {
    return named_layout(spec::layout_from_text(text, 64));
  };
  EXPECT_EQ(named("zero=3"), "dp 64 ZeRO-3, micro-batch 1, bf16 (FSDP over 64)");
  EXPECT_EQ(named(""), "dp 64, micro-batch 1, bf16 (DDP)");
  EXPECT_EQ(named("tp=8 zero=3"), "tp 8, dp 8 ZeRO-3, micro-batch 1, bf16");
}

TEST(PlanWords, a_machine_without_gpus_has_ranks) {
  spec::Machine machine;
  machine.processor.fp32_flops = machine.processor.bf16_flops = 1e11;
  EXPECT_EQ(gpus_text(machine, 1), "1 rank");
  machine.processor.bf16_flops = 1e15;
  EXPECT_EQ(gpus_text(machine, 1024), "1,024 GPUs");
}

}  // namespace
}  // namespace trireme::cli
