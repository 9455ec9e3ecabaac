// SPDX-License-Identifier: Apache-2.0
// Rules of thumb that do not hold, or contradict each other or arithmetic: memory and rates.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plan/price/price.h"
#include "spec/facts/facts.h"
#include "tests/planner/rules_rig.h"

namespace trireme::tests {
namespace {

Row one_node_row() {
  const spec::Machine machine = shipped_machine("h100");
  const spec::ModelSpec model = shipped_model("llama3-70b");
  const plan::SearchResult node = fastest(job_of(model, 8192, 96), machine, 8);
  const double state = 16.0 * llama3_70b_params / 8;
  EXPECT_FALSE(node.best.has_value());
  const double smallest = node.smallest.value().price.bytes;
  EXPECT_GT(smallest, state);
  EXPECT_NEAR(state, 141e9, 1e9);
  const plan::SearchResult two = fastest(job_of(model, 8192, 96), machine, 16);
  const plan::SearchResult three = fastest(job_of(model, 8192, 96), machine, 24);
  EXPECT_FALSE(two.best.has_value());
  EXPECT_TRUE(three.best.has_value());
  return {"\"70B fits on 8 x 80 GB with ZeRO-3 and recompute at 50 to 60 GB per GPU\"",
          fmt::format("state alone is {:.0f} GB per GPU; the smallest layout takes {:.0f} GB, "
                      "{:.0f} GB on 16 GPUs; on 24 it fits",
                      state / 1e9, smallest / 1e9, two.smallest.value().price.bytes / 1e9),
          "does not hold: at least 15 GPUs or offload; with fp32 gradients and activations 3 nodes",
          Evidence::formula};
}

Row large_row() {
  const plan::Job job = job_of(shipped_model("llama3-405b"), 8192, 2048);
  int enough = 256;
  while (simulated("1f1b", 16, enough).bubble_fraction() > 0.05 + 1e-9) ++enough;
  EXPECT_EQ(enough, 19 * (16 - 1));
  const double bubble = simulated("1f1b", 16, 16).bubble_fraction();
  const spec::Layout layout{.tp = 8, .pp = 16, .dp_replicate = 128};
  EXPECT_EQ(layout.ranks(), 16384);
  EXPECT_EQ(micro_batches(job, layout), 16);
  const double needed = 1.0 * enough * layout.data_ranks() * static_cast<double>(job.seq_len);
  EXPECT_DOUBLE_EQ(needed, 285.0 * 128 * 8192);
  EXPECT_NEAR(bubble, 15.0 / (15 + 16), 1e-9);
  const double chunked = simulated("interleaved", 16, 16, 8).bubble_fraction();
  EXPECT_NEAR(chunked, 15.0 / 8 / (16 + 15.0 / 8), 1e-9);
  return {
      "\"405B on 16,384 GPUs with TP8 PP16 DP128 and a bubble below 5 %\"",
      fmt::format("{} micro-batches are {:.0f}M tokens per step; at 16.8M there are {}: bubble "
                  "{:.0f} %, {:.0f} % interleaved with 8 chunks",
                  enough, needed / 1e6, micro_batches(job, layout), 100 * bubble, 100 * chunked),
      "does not hold at 16M tokens, even interleaved", Evidence::formula};
}

Row offload_row() {
  const auto weights = 2.0 * static_cast<double>(spec::parameter_count(llama2(13)));
  EXPECT_EQ(weights, 2 * llama2_13b_params);
  EXPECT_GT(weights, 24e9);
  return {"\"13B on one GPU of 24 GB with the optimizer offloaded\"",
          fmt::format("bf16 weights alone are {:.0f} GB", weights / 1e9),
          "does not hold: parameters must be offloaded, too", Evidence::formula};
}

Row intensity_row() {
  const double by_formula = 2.0 * 4096 * 8192 / (4096 + 8192);
  EXPECT_EQ(std::round(by_formula), 5461);
  const spec::ModelSpec model = shipped_model("llama3-70b");
  spec::LocalShape shape;
  shape.seq_len = shape.tokens = shape.head_chunk_rows = 4096;
  const spec::Facts facts = spec::facts(model, 1, shape, spec::recipe_from_name("bf16"),
                                        spec::Recompute::none, spec::cuda_backend(false));
  double flops = 0, bytes = 0;
  for (const spec::OpCost& op : facts.f) {
    if (op.kind != spec::OpKind::gemm) continue;
    flops += op.flops;
    bytes += static_cast<double>(op.bytes);
  }
  // By hand, 2 bytes per element: weights of 10,240, 8,192, 57,344 and 28,672 x 8,192; rows of
  // inputs and outputs; and the residuals that two products read.
  const double weights = 8192.0 * (10240 + 8192 + 57344 + 28672);
  const double rows = 4096.0 * (4 * 8192 + 28672 + 10240 + 57344 + 8192 + 2 * 8192);
  EXPECT_NEAR(flops, 2 * 4096 * weights, 1e-9 * flops);
  EXPECT_NEAR(bytes, 2 * (weights + rows), 0.001 * bytes);
  return {"\"The average intensity of products, 2bL/(b+L), is 2,700 for b = 4096, L = 8192\"",
          fmt::format("the formula gives {:.0f}; products of one block of 70B, forward with 4,096 "
                      "tokens, have {:.0f} FLOP/byte",
                      by_formula, flops / bytes),
          "the formula does not give this number (2,731 is half of its result, for 2 bytes per "
          "element); in both cases products are compute-bound",
          Evidence::formula};
}

Row data_row() {
  constexpr int ranks = 1000;
  const double each = 4e7 / ranks * 2;
  const plan::Job job = job_of(shipped_model("llama3-70b"), 8192, 1);
  const spec::Machine machine = shipped_machine("h100");
  plan::Pricer pricer(job, machine, plan::trireme_stack());
  const double token = pricer.price({}).model_flops / static_cast<double>(job.tokens());
  const double rate = 0.5 * ranks * machine.processor.bf16_flops / token;
  EXPECT_DOUBLE_EQ(each, 80e3);
  EXPECT_NEAR(rate, 0.5 * 1000 * 989e12 / llama3_70b_flops(8192).model(), 0.003 * rate);
  return {
      "\"80 MB/s per rank for 4e7 tokens/s over 1,000 ranks\"",
      fmt::format("{:.0f} kB/s per rank at 2 bytes per token; 70B at 50 % MFU on 1,000 H100 "
                  "consumes {:.1f}M tokens/s, {:.1f} kB/s per rank",
                  each / 1e3, rate / 1e6, 2 * rate / ranks / 1e3),
      fmt::format("does not hold: off by 1,000, and 4e7 tokens/s are {:.0f} times the consumption",
                  4e7 / rate),
      Evidence::formula};
}

Row write_row() {
  const double together = 30e9 * 16000, each = 6.5e12 / 4 / 16000;
  EXPECT_LT(6.5e12 / together, 0.05);
  EXPECT_NEAR(each, 0.1e9, 0.01e9);
  return {"\"30 GB/s per rank\" and \"6.5 TB in 4 s\" on 16,000 ranks",
          fmt::format("30 GB/s per rank write 6.5 TB in {:.3f} s; 4 s are {:.2f} GB/s per rank",
                      6.5e12 / together, each / 1e9),
          "cannot both hold", Evidence::arithmetic};
}

Row bubble_memory_row() {
  const sim::Result result = simulated("1f1b", 8, 32);
  const double of_step = result.bubble_fraction(), of_work = of_step / (1 - of_step);
  EXPECT_NEAR(of_work, 7.0 / 32, 1e-9);
  EXPECT_NEAR(of_step, 7.0 / 39, 1e-9);
  return {
      "The bubble is (P-1)/M, and it is (S-1)/(S-1+M)",
      fmt::format("8 stages, 32 micro-batches: {:.1f} % of the time without the bubble, {:.1f} % "
                  "of the step",
                  100 * of_work, 100 * of_step),
      "both hold, with different denominators; Trireme prints the fraction of the step",
      Evidence::formula};
}

Row selective_row() {
  const plan::Job job = job_of(shipped_model("llama3-70b"), 8192, 512);
  const spec::Machine machine = shipped_machine("h100");
  plan::Pricer pricer(job, machine, plan::trireme_stack());
  spec::Layout layout{.tp = 8, .pp = 2, .dp_shard = 64, .zero_stage = 1, .sequence_parallel = true};
  const plan::Price none = pricer.price(layout);
  const auto more = [&](spec::Recompute recompute) {
    layout.recompute = recompute;
    return 100 * (pricer.price(layout).seconds / none.seconds - 1);
  };
  const double selective = more(spec::Recompute::selective), full = more(spec::Recompute::full);
  // Recompute repeats compute, so that it costs at most its share of FLOPs: 24 % (recompute_row).
  EXPECT_LT(selective, 5);
  EXPECT_GT(full, 15);
  EXPECT_LT(full, 33);
  return {
      "\"Selective recomputation costs 33 %\" and \"less than 5 %\"",
      fmt::format("70B, tp 8 pp 2: selective {:.1f} % more time, full {:.0f} %", selective, full),
      "the second holds; the first is full recompute", Evidence::regression};
}

}  // namespace

std::vector<Row> memory_contradictions() { return {one_node_row(), large_row(), offload_row()}; }

std::vector<Row> rate_contradictions() {
  return {intensity_row(), data_row(), write_row(), bubble_memory_row(), selective_row()};
}

}  // namespace trireme::tests
