// SPDX-License-Identifier: Apache-2.0
// Rules of thumb with conditions: ZeRO-3 against ZeRO-1 with tensor parallelism, prefetch, fp8.
// Most rows compare times of the planner with each other, so that they are regression tests.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/price/collective.h"
#include "plan/price/op_time.h"
#include "plan/price/price.h"
#include "tests/planner/rules_rig.h"

namespace trireme::tests {
namespace {

using plan::Space;

Row pod_row() {
  const spec::Machine pod = shipped_machine("gb200");
  const plan::Job job = job_of(shipped_model("llama3-70b"), 8192, 64);
  const double sharded = fastest_seconds(job, pod, 64, {.tp = {1}, .pp = {1}, .zero = {3}});
  const double cut = fastest_seconds(job, pod, 64, {.tp = {2, 4, 8}, .pp = {1, 2}, .zero = {1}});
  EXPECT_LT(sharded, cut);
  return {
      "ZeRO-3 wins inside one NVLink pod",
      fmt::format("70B, 0.5M tokens, 64 of a GB200 NVL72: ZeRO-3 alone {:.2f} s, the best ZeRO-1 "
                  "with tp {:.2f} s",
                  sharded, cut),
      "holds: gathers overlap with compute, collectives of tp do not", Evidence::regression};
}

// Returns the seconds of B, A and C on 1,024 GPUs.
std::array<double, 3> three_seconds(const plan::Job& job, const spec::Machine& machine) {
  const ThreeLayouts all = three_layouts();
  return {fastest_seconds(job, machine, 1024, all.b), fastest_seconds(job, machine, 1024, all.a),
          fastest_seconds(job, machine, 1024, all.c)};
}

std::string text_of(const std::array<double, 3>& s) {
  return fmt::format("{:.2f}, {:.2f}, {:.2f} s", s[0], s[1], s[2]);
}

Row slow_row() {
  const spec::ModelSpec model = shipped_model("llama3-70b");
  const spec::Machine machine = shipped_machine("h100");
  spec::Machine slow = machine;
  slow.network.link.bytes_per_second /= 4;
  const auto small = three_seconds(job_of(model, 2048, 1024), machine);
  const auto slower = three_seconds(job_of(model, 4096, 1024), slow);
  for (const auto& s : {small, slower}) {
    EXPECT_LT(s[0], s[1]);
    EXPECT_LT(s[1], s[2]);
  }
  return {
      "ZeRO-1 + TP beats ZeRO-3 when the shard group spans slow links. 70B on 1,024 H100: B (TP8 "
      "PP2 ZeRO-1 DP64) before A (TP8 ZeRO-3 DP128) before C (ZeRO-3 DP1024)",
      fmt::format("B, A, C: at 2M tokens (2,048 per GPU) {}; at 4M tokens with adapters of 100 "
                  "Gb/s {}",
                  text_of(small), text_of(slower)),
      "holds if there is little compute for each byte that leaves the node", Evidence::regression};
}

Row fast_row() {
  const auto s =
      three_seconds(job_of(shipped_model("llama3-70b"), 4096, 1024), shipped_machine("h100"));
  EXPECT_LT(s[0], s[1]);
  return {"The same at 4M tokens (1,024 sequences of 4,096)",
          fmt::format("B, A, C: {}", text_of(s)),
          s[1] < s[2] ? "holds"
                      : "B before A holds; C is first in Trireme's model, which overlaps 90 % of "
                        "ZeRO-3's transfers with the compute of 4,096 tokens per GPU at the "
                        "network's full rate, and no collective of tp",
          Evidence::regression};
}

Row preferred_row() {
  const plan::Job job = job_of(shipped_model("llama3-70b"), 8192, 512);
  const spec::Machine machine = shipped_machine("h100");
  const ThreeLayouts all = three_layouts();
  const double b = fastest_seconds(job, machine, 1024, all.b);
  const double a = fastest_seconds(job, machine, 1024, all.a);
  EXPECT_LT(b, a);
  EXPECT_FALSE(plan::broken_rule(job, {.dp_shard = 1024, .zero_stage = 3}).empty());
  const plan::Candidate first = fastest(job, machine, 1024, {.zero = {1}}).best.value();
  const plan::Candidate third = fastest(job, machine, 1024, {.zero = {3}}).best.value();
  EXPECT_LE(first.layout.tp, machine.domain.size);
  const bool holds = first.price.seconds < third.price.seconds;
  EXPECT_TRUE(holds);
  return {
      "70B on 1,024 H100 at 4M tokens (512 sequences of 8,192): TP in the node with ZeRO-1 is "
      "faster than ZeRO-3 across nodes",
      fmt::format("B {:.2f} s, A {:.2f} s, C has more ranks than sequences. Best with ZeRO-1: "
                  "{}: {:.2f} s; with ZeRO-3: {}: {:.2f} s",
                  b, a, spec::words(first.layout), first.price.seconds, spec::words(third.layout),
                  third.price.seconds),
      holds ? "holds"
            : "holds for B and A; over all layouts Trireme's model prefers ZeRO-3 with little tp, "
              "for the reason above",
      Evidence::regression};
}

Row prefetch_row() {
  constexpr int ranks = 512;
  const plan::Job job = job_of(shipped_model("llama3-70b"), 8192, ranks);
  const spec::Machine machine = shipped_machine("h100");
  const plan::Candidate best =
      fastest(job, machine, ranks, {.tp = {1}, .pp = {1}, .zero = {3}}).best.value();
  // Weights that are gathered after a layer's backward overlap with nothing.
  const double blocks = job.model.blocks();
  const auto params = static_cast<double>(spec::parameter_count(job.model));
  const double gather = blocks * plan::collective_seconds(machine, plan::Collective::all_gather,
                                                          {ranks, 1}, 2 * params / blocks);
  // A node receives 2 bytes per parameter over 8 adapters of 50 GB/s.
  EXPECT_GT(gather, 2 * llama3_70b_params * 63 / 64 / (8 * 50e9));
  const double hidden = gather * plan::trireme_stack().zero3_overlap;
  const auto mfu = [&](double seconds) {
    return 100 * best.price.model_flops / (seconds * ranks * machine.processor.bf16_flops);
  };
  const double before = mfu(best.price.seconds), after = mfu(best.price.seconds + hidden);
  EXPECT_GT(before - after, 2);
  EXPECT_LT(before - after, 8);
  return {
      "Prefetch before the current backward instead of after it recovered 8 % MFU (70B, FSDP, "
      "hundreds of GPUs)",
      fmt::format("512 H100, one sequence of 8,192 each: a backward's gathers take {:.2f} s of "
                  "{:.1f}; MFU {:.0f} % if they overlap, {:.0f} % if not",
                  gather, best.price.seconds, before, after),
      fmt::format("holds in sign, but Trireme's gain is smaller: {:.0f} points, {:.0f} % of the "
                  "throughput (computed from terms of the price, which assumes prefetch before)",
                  before - after, 100 * (before / after - 1)),
      Evidence::regression};
}

Row fp8_row() {
  const spec::Machine machine = shipped_machine("h100");
  const auto seconds = [&](spec::Precision precision) {
    const plan::Product product{.m = 8192, .n = 28672, .k = 8192};
    return plan::gemm_seconds(machine.processor, product, precision);
  };
  const double product = seconds(spec::Precision::bf16) / seconds(spec::Precision::fp8);
  const auto gain = [&](const plan::Job& job, int64_t gpus, Space space) {
    space.unaudited = true;
    const double bf16 = fastest_seconds(job, machine, gpus, space);
    space.precision = {spec::Precision::fp8};
    return bf16 / fastest_seconds(job, machine, gpus, space);
  };
  const double large =
      gain(job_of(shipped_model("llama3-70b"), 8192, 128), 64, {.tp = {4}, .pp = {4}, .zero = {1}});
  const double small = gain(job_of(shipped_model("llama-8b"), 8192, 128), 8, {.tp = {1}});
  EXPECT_NEAR(product, 1.85, 0.1);
  for (const double end_to_end : {large, small}) {
    EXPECT_GT(end_to_end, 1.3);
    EXPECT_LT(end_to_end, 1.6);
  }
  return {
      "fp8 doubles the tensor cores' rate; published pairs of runs gain 1.3 to 1.6 times end to "
      "end",
      fmt::format("H100: a large product {:.2f} times as fast; a step of 70B on 64 {:.2f}, of "
                  "8B on 8 {:.2f}",
                  product, large, small),
      "holds", Evidence::published};
}

}  // namespace

std::vector<Row> sharding_rows() {
  return {pod_row(), slow_row(), fast_row(), preferred_row(), prefetch_row(), fp8_row()};
}

}  // namespace trireme::tests
