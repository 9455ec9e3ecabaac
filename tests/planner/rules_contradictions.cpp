// SPDX-License-Identifier: Apache-2.0
// Sayings that do not hold, or contradict each other or arithmetic: memory and rates.
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
  const double state = 16.0 * static_cast<double>(spec::parameter_count(model)) / 8;
  EXPECT_FALSE(node.best.has_value());
  const double least = node.smallest.value().price.bytes;
  EXPECT_GT(least, state);
  EXPECT_NEAR(state, 141e9, 1e9);
  const plan::SearchResult two = fastest(job_of(model, 8192, 96), machine, 16);
  const plan::SearchResult three = fastest(job_of(model, 8192, 96), machine, 24);
  EXPECT_FALSE(two.best.has_value());
  EXPECT_TRUE(three.best.has_value());
  return {
      "\"70B fits on 8 x 80 GB with ZeRO-3 and recompute at 50 to 60 GB a GPU\"",
      fmt::format("state alone is {:.0f} GB a GPU; the smallest layout takes {:.0f} GB, "
                  "{:.0f} GB on 16 GPUs; on 24 it fits",
                  state / 1e9, least / 1e9, two.smallest.value().price.bytes / 1e9),
      "does not hold: at least 15 GPUs or offload; with fp32 gradients and activations 3 nodes"};
}

Row large_row() {
  const plan::Job job = job_of(shipped_model("llama3-405b"), 8192, 2048);
  int enough = 256;
  while (played("1f1b", 16, enough).bubble_fraction() > 0.05 + 1e-9) ++enough;
  EXPECT_EQ(enough, 285);
  const double bubble = played("1f1b", 16, 16).bubble_fraction();
  const spec::Layout layout{.tp = 8, .pp = 16, .dp_replicate = 128};
  EXPECT_EQ(layout.ranks(), 16384);
  EXPECT_EQ(micro_batches(job, layout), 16);
  const double needed = 1.0 * enough * layout.data_ranks() * static_cast<double>(job.seq_len);
  EXPECT_NEAR(needed, 299e6, 1e6);
  EXPECT_NEAR(bubble, 0.48, 0.005);
  const double chunked = played("interleaved", 16, 16, 8).bubble_fraction();
  EXPECT_GT(chunked, 0.05);
  EXPECT_LT(chunked, 0.15);
  return {
      "\"405B on 16,384 GPUs with TP8 PP16 DP128 and a bubble below 5 %\"",
      fmt::format("{} micro-batches are {:.0f}M tokens a step; at 16.8M there are {}: bubble "
                  "{:.0f} %, {:.0f} % interleaved with 8 chunks",
                  enough, needed / 1e6, micro_batches(job, layout), 100 * bubble, 100 * chunked),
      "does not hold at 16M tokens, even interleaved"};
}

Row offload_row() {
  const auto weights = 2.0 * static_cast<double>(spec::parameter_count(llama2(13)));
  EXPECT_GT(weights, 24e9);
  return {"\"13B on one GPU of 24 GB with the optimizer offloaded\"",
          fmt::format("bf16 weights alone are {:.0f} GB", weights / 1e9),
          "does not hold: parameters must be offloaded, too"};
}

Row intensity_row() {
  const double said = 2.0 * 4096 * 8192 / (4096 + 8192);
  EXPECT_EQ(std::round(said), 5461);
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
  EXPECT_GT(flops / bytes, 2000);
  EXPECT_LT(flops / bytes, 3000);
  return {"\"The average intensity of products, 2bL/(b+L), is 2,700 for b = 4096, L = 8192\"",
          fmt::format("the formula gives {:.0f}; products of one block of 70B, forward with 4,096 "
                      "tokens, have {:.0f} FLOP/byte",
                      said, flops / bytes),
          "the formula does not give its number (2,731 is half of it, for 2 bytes an element); "
          "either way they are bound by compute"};
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
  EXPECT_GT(rate, 1e6);
  EXPECT_LT(rate, 1.25e6);
  return {
      "\"80 MB/s a rank for 4e7 tokens/s over 1,000 ranks\"",
      fmt::format("arithmetic: {:.0f} kB/s a rank at 2 bytes a token; 70B at 50 % MFU on 1,000 "
                  "H100 consumes {:.1f}M tokens/s, {:.1f} kB/s a rank",
                  each / 1e3, rate / 1e6, 2 * rate / ranks / 1e3),
      fmt::format("does not hold: off by 1,000, and 4e7 tokens/s are {:.0f} times what is consumed",
                  4e7 / rate)};
}

Row write_row() {
  const double together = 30e9 * 16000, each = 6.5e12 / 4 / 16000;
  EXPECT_LT(6.5e12 / together, 0.05);
  EXPECT_NEAR(each, 0.1e9, 0.01e9);
  return {"\"30 GB/s a rank\" and \"6.5 TB in 4 s\" on 16,000 ranks",
          fmt::format("arithmetic: 30 GB/s a rank write 6.5 TB in {:.3f} s; 4 s are {:.2f} GB/s a "
                      "rank",
                      6.5e12 / together, each / 1e9),
          "cannot both hold"};
}

Row bubble_memory_row() {
  const sim::Result result = played("1f1b", 8, 32);
  const double whole = result.bubble_fraction(), ideal = whole / (1 - whole);
  EXPECT_NEAR(ideal, 7.0 / 32, 1e-9);
  EXPECT_NEAR(whole, 7.0 / 39, 1e-9);
  return {
      "The bubble is (P-1)/M, and it is (S-1)/(S-1+M)",
      fmt::format("8 stages, 32 micro-batches: {:.1f} % of the time without it, {:.1f} % of the "
                  "whole",
                  100 * ideal, 100 * whole),
      "both hold, for their own denominator; Trireme prints the part of the whole"};
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
  EXPECT_LT(selective, 5);
  EXPECT_GT(full, 15);
  EXPECT_LT(full, 33);
  return {
      "\"Selective recomputation costs 33 %\" and \"less than 5 %\"",
      fmt::format("70B, tp 8 pp 2: selective {:.1f} % more time, full {:.0f} %", selective, full),
      "the second holds; the first is full recompute"};
}

}  // namespace

std::vector<Row> memory_contradictions() { return {one_node_row(), large_row(), offload_row()}; }

std::vector<Row> rate_contradictions() {
  return {intensity_row(), data_row(), write_row(), bubble_memory_row(), selective_row()};
}

}  // namespace trireme::tests
