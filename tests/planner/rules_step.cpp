// SPDX-License-Identifier: Apache-2.0
// Rules of thumb that are formulas: bubbles, FLOPs, balance, checkpoints, batches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plan/price/price.h"
#include "plan/price/run_cost.h"
#include "tests/planner/rules_rig.h"

namespace trireme::tests {
namespace {

Row bubble_row() {
  for (const char* name : {"gpipe", "1f1b"}) {
    EXPECT_NEAR(simulated(name, 8, 8).bubble_fraction(), 7.0 / 15, 1e-9) << name;
    EXPECT_NEAR(simulated(name, 8, 64).bubble_fraction(), 7.0 / 71, 1e-9) << name;
  }
  EXPECT_NEAR(simulated("1f1b", 16, 285).bubble_fraction(), 0.05, 1e-9);
  EXPECT_GT(simulated("1f1b", 16, 284).bubble_fraction(), 0.05);
  return {
      "Bubble of GPipe and 1F1B: (S-1)/(S-1+M). 8 stages: 47 % at M = 8, 10 % at M = 64; at "
      "most 5 % needs M >= 19 (S-1), 285 for S = 16",
      fmt::format("simulated: {:.1f} %, {:.1f} %; S = 16: {:.2f} % at 284, {:.2f} % at 285",
                  100 * simulated("1f1b", 8, 8).bubble_fraction(),
                  100 * simulated("1f1b", 8, 64).bubble_fraction(),
                  100 * simulated("1f1b", 16, 284).bubble_fraction(),
                  100 * simulated("1f1b", 16, 285).bubble_fraction()),
      "holds for equal stages", Evidence::formula};
}

struct Flops {
  double model, hardware;
};

Flops flops_of(const plan::Job& job, const plan::Stack& stack, spec::Recompute recompute) {
  const spec::Machine machine = shipped_machine("h100");
  plan::Pricer pricer(job, machine, stack);
  spec::Layout layout;
  layout.recompute = recompute;
  const plan::Price price = pricer.price(layout);
  return {price.model_flops, price.hardware_flops};
}

Row recompute_row() {
  const plan::Job job = job_of(shipped_model("llama3-70b"), 2048, 1);
  const Flops megatron = flops_of(job, shipped_stack("megatron-core"), spec::Recompute::full);
  const Flops own = flops_of(job, plan::trireme_stack(), spec::Recompute::full);
  const HandFlops hand = llama3_70b_flops(2048);
  EXPECT_NEAR(megatron.hardware / megatron.model, 4.0 / 3, 0.02);
  EXPECT_NEAR(own.hardware / own.model,
              1 + (hand.products - hand.down + hand.attention) / hand.model(), 0.003);
  return {"Full recompute costs one forward: 33 % more FLOPs, HFU/MFU = 4/3",
          fmt::format("70B, sequences of 2,048: HFU/MFU {:.2f} if complete blocks are recomputed, "
                      "{:.2f} in Trireme",
                      megatron.hardware / megatron.model, own.hardware / own.model),
          "holds for complete blocks; Trireme does not recompute a block's last product, because "
          "backward does not read its output",
          Evidence::formula};
}

Row six_row() {
  const spec::ModelSpec model = shipped_model("llama3-70b");
  const auto ratio = [&](int64_t length) {
    const plan::Job job = job_of(model, length, 1);
    return flops_of(job, plan::trireme_stack(), spec::Recompute::none).model /
           (6 * llama3_70b_params * static_cast<double>(job.tokens()));
  };
  for (const int64_t length : {2048, 8192}) {
    const double hand = llama3_70b_flops(static_cast<double>(length)).model();
    EXPECT_NEAR(ratio(length), hand / (6 * llama3_70b_params), 0.002) << length;
  }
  EXPECT_NEAR(ratio(2048), 1, 0.03);
  EXPECT_GT(ratio(8192), ratio(2048));
  EXPECT_LT(ratio(8192), 1.15);
  return {"FLOPs of a step are 6 P T",
          fmt::format("70B: {:.2f} of it with sequences of 2,048 tokens, {:.2f} with 8,192",
                      ratio(2048), ratio(8192)),
          "holds for short sequences; causal attention adds its share, the token table needs none",
          Evidence::formula};
}

Row balance_row() {
  const spec::Processor p = shipped_machine("h100").processor;
  const double bf16 = p.bf16_flops / p.bytes_per_second;
  const double fp8 = p.fp8_flops / p.bytes_per_second;
  EXPECT_EQ(std::round(bf16), 295);
  EXPECT_NEAR(fp8, 590, 1);
  return {
      "H100 balance: 989 TFLOP/s over 3.35 TB/s = 295 FLOP/byte, fp8 590",
      fmt::format("{:.0f} and {:.0f}", bf16, fp8),
      fmt::format("holds for peaks; the rates reached in practice ({:.0f} % of FLOP/s, {:.0f} % of "
                  "bandwidth) give {:.0f}",
                  100 * p.gemm_reach, 100 * p.memory_reach, bf16 * p.gemm_reach / p.memory_reach),
      Evidence::published};
}

Row interval_row() {
  const double seconds = plan::best_save_interval(20, 25000);
  EXPECT_DOUBLE_EQ(seconds, 1000);
  const double stall = plan::best_save_interval(0.5, 25000);
  return {
      "Checkpoint every sqrt(2 C tau): 20 s and 7 h (25,000 s) give 1,000 s; with asynchronous "
      "saves C is the stall",
      fmt::format("{:.0f} s; with a stall of 0.5 s {:.0f} s", seconds, stall),
      "holds; with `checkpoint.mean_failure_seconds` a run saves at this interval, computed from "
      "the stall that it measures. It is the longest sensible interval, not a target",
      Evidence::formula};
}

Row batch_row() {
  plan::Job job;
  job.seq_len = 2048;
  job.global_batch = 8 * 256;
  EXPECT_EQ(job.tokens(), 4194304);
  return {"2k tokens x 8 ranks x 256 accumulation steps = 4.1M tokens",
          fmt::format("{:.2f}M with sequences of 2,048", static_cast<double>(job.tokens()) / 1e6),
          "holds (4.10M with 2,000)", Evidence::arithmetic};
}

Row interruptions_row() {
  const double count = 30.0 * 24 / 7, lost = count / (30.0 * 24);
  EXPECT_EQ(std::round(count), 103);
  EXPECT_NEAR(lost, 0.14, 0.005);
  return {"30 days at a failure every 7 h: 103 interruptions; at one hour each 14 % of the run",
          fmt::format("{:.0f}, {:.1f} %", count, 100 * lost), "holds", Evidence::arithmetic};
}

}  // namespace

std::vector<Row> step_rows() {
  return {bubble_row(),   recompute_row(), six_row(),          balance_row(),
          interval_row(), batch_row(),     interruptions_row()};
}

}  // namespace trireme::tests
