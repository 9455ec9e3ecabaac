// SPDX-License-Identifier: Apache-2.0
// Rules of thumb with conditions: the placement of axes, and the time of collectives.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/price/collective.h"
#include "plan/price/op_time.h"
#include "plan/price/price.h"
#include "schedule/catalogue.h"
#include "spec/facts/comm_cost.h"
#include "spec/facts/facts.h"
#include "tests/planner/rules_rig.h"

namespace trireme::tests {
namespace {

using plan::Collective;
using plan::Space;

// Returns the seconds of one all-reduce of activations, 8,192 tokens of width 8,192 in bf16.
double layer_reduce(const spec::Machine& machine, int64_t tp) {
  return plan::collective_seconds(machine, Collective::all_reduce, {tp, 1}, 8192.0 * 8192 * 2);
}

Row domain_row() {
  const spec::Machine node = shipped_machine("h100");
  spec::Machine wide = node;
  wide.domain.size = 16;
  const double inside = 1e3 * layer_reduce(wide, 16), across = 1e3 * layer_reduce(node, 16);
  const plan::Job job = job_of(shipped_model("gpt3-175b"), 2048, 1536);
  const spec::Layout best = fastest(job, node, 1024).best.value().layout;
  const double eight = fastest_seconds(job, node, 1024, {.tp = {8}});
  const double sixteen = fastest_seconds(job, node, 1024, {.tp = {16}});
  EXPECT_GT(across, inside);
  EXPECT_LE(best.tp, 8);
  EXPECT_GT(sixteen, 1.1 * eight);
  return {
      "TP stays within the NVLink domain: 8 on H100 nodes",
      fmt::format("175B on 1,024 H100: tp {} is best, tp 16 takes {:.0f} % longer than tp 8. An "
                  "all-reduce of 134 MB over 16 ranks takes {:.2f} ms in two nodes, {:.2f} ms in "
                  "one domain of 16",
                  best.tp, 100 * (sixteen / eight - 1), across, inside),
      "holds if there are enough sequences for all data ranks; with far fewer sequences than GPUs "
      "a larger tp remains, and all 8 adapters of a node carry its collectives",
      Evidence::regression};
}

Row bloom_row() {
  const plan::Job job = job_of(bloom_176b(), 2048, 2048);
  spec::Machine eight = shipped_machine("a100-80gb"), four = eight;
  four.domain.size = 4;
  const auto seconds = [&](const spec::Machine& machine, int tp, int pp) {
    return fastest_seconds(job, machine, 384,
                           {.tp = {tp},
                            .pp = {pp},
                            .zero = {1},
                            .micro_batch = {2},
                            .pipes = {schedule::Kind::one_f_one_b},
                            .recompute = {spec::Recompute::full}});
  };
  const double wide4 = seconds(four, 8, 6), narrow4 = seconds(four, 4, 12);
  const double wide8 = seconds(eight, 8, 6), narrow8 = seconds(eight, 4, 12);
  EXPECT_GT(wide4, 1.1 * narrow4);
  EXPECT_LT(wide8, wide4);
  EXPECT_LT(narrow8, 1.15 * wide8);
  return {
      "BLOOM's nodes are islands of 4: TP8 was not possible, and TP4 PP12 cost 15 % of throughput",
      fmt::format("176B on 384 A100, full recompute: in islands of 4 TP8 PP6 takes {:.0f} s, TP4 "
                  "PP12 {:.0f} s; in domains of 8 {:.0f} s and {:.0f} s",
                  wide4, narrow4, wide8, narrow8),
      "TP4 in islands of 4 holds; the 15 % do not: with 128 micro-batches more stages cost no "
      "more than a larger tp",
      Evidence::regression};
}

struct UsefulTp {
  int largest = 0;    // the largest tp that spends less than a third of a step in collectives
  std::string parts;  // the fraction of a step in collectives, by tp
};

UsefulTp useful_tp(const plan::Job& job, const spec::Machine& machine) {
  UsefulTp useful;
  for (const int tp : {8, 16, 32, 64}) {
    const plan::Price price =
        fastest(job, machine, 512, {.tp = {tp}, .unaudited = true}).best.value().price;
    const double part = price.at(plan::Term::tensor) / price.seconds;
    if (part < 1.0 / 3) useful.largest = tp;
    useful.parts += fmt::format("{}{:.0f} %", tp == 8 ? "" : ", ", 100 * part);
  }
  return useful;
}

Row rack_row() {
  const spec::Machine rack = shipped_machine("gb200");
  spec::Machine nodes = rack;
  nodes.domain.size = 8;
  const plan::Job job = job_of(shipped_model("llama3-405b"), 8192, 512);
  const UsefulTp in_rack = useful_tp(job, rack), in_nodes = useful_tp(job, nodes);
  EXPECT_GT(in_rack.largest, in_nodes.largest);
  const plan::Job few = job_of(job.model, 8192, 32);
  const double apart = fastest_seconds(few, nodes, 512, {.tp = {16}, .unaudited = true});
  const double together = fastest_seconds(few, rack, 512, {.tp = {16}, .unaudited = true});
  EXPECT_LT(together, 0.9 * apart);
  const std::string rule = plan::broken_rule(job, {.tp = 72});
  EXPECT_NE(rule.find("heads = 128"), std::string::npos) << rule;
  return {
      "On NVL72 tp can go up to 72",
      fmt::format("405B on 512 GB200: tp 8, 16, 32, 64 spend {} of a step in their collectives "
                  "in domains of 72, {} in domains of 8; with 32 sequences tp 16 takes {:.2f} s "
                  "and {:.2f} s",
                  in_rack.parts, in_nodes.parts, together, apart),
      fmt::format("does not hold up to 72: the largest tp that spends less than a third of a step "
                  "in collectives grows from {} to {}; the growing share of collectives, heads "
                  "(128 do not divide by 72) and key and value heads (8) limit it earlier",
                  in_nodes.largest, in_rack.largest),
      Evidence::regression};
}

Row stage_row() {
  const spec::Machine machine = shipped_machine("h100");
  const plan::Job job = job_of(shipped_model("llama3-70b"), 8192, 512);
  plan::Pricer pricer(job, machine, plan::trireme_stack());
  const spec::Layout layout{
      .tp = 8, .pp = 2, .dp_shard = 64, .zero_stage = 1, .sequence_parallel = true};
  const plan::LayerCosts& layers = pricer.layers(layout);
  const double message = layers.block.input;
  spec::LocalShape shape;
  shape.seq_len = shape.tokens = shape.head_chunk_rows = 8192;
  shape.mesh[spec::Axis::tp] = 8;
  shape.sequence_parallel = true;
  const spec::Facts block = spec::facts(job.model, 1, shape, spec::recipe_from_name("bf16"),
                                        spec::Recompute::none, spec::cuda_backend(false));
  double tensor = 0;  // bytes of the 40 blocks of a stage
  for (const spec::CommCost& cost : block.f_comm) {
    tensor += 40 * static_cast<double>(spec::sent_bytes(cost, 8));
  }
  const double seconds = plan::message_seconds(machine, 8, message);
  // With sequence parallelism a rank sends an eighth of 8,192 x 8,192 bf16 elements to the next
  // stage, and 7/8 of all of them in each of a block's two all-gathers and two reduce-scatters.
  EXPECT_EQ(message, 8192.0 * 8192 * 2 / 8);
  EXPECT_DOUBLE_EQ(tensor, 40 * 4 * 7.0 / 8 * 8192 * 8192 * 2);
  EXPECT_LT(seconds, layers.block.f);
  EXPECT_GT(tensor / message, 1000);
  const double bubble = simulated("1f1b", 8, 32).bubble_fraction();
  const double chunked = simulated("interleaved", 8, 32, 4).bubble_fraction();
  EXPECT_NEAR(bubble, 7.0 / (32 + 7), 1e-6);
  EXPECT_NEAR(chunked, 7.0 / 4 / (32 + 7.0 / 4), 1e-6);
  const auto facts = [](const char* name, int chunks) {
    const schedule::Schedule all = schedule::add_p2p(
        schedule::generate(name, {.ranks = 8, .microbatches = 32, .chunks = chunks}).value());
    int64_t sends = 0;
    for (const auto& program : all.program) {
      sends += std::ranges::count_if(program, [](const schedule::Action& action) {
        return action.op == schedule::Op::SendY || action.op == schedule::Op::SendDx;
      });
    }
    return std::pair(sends, schedule::in_flight(all).front().f_to_w / static_cast<double>(chunks));
  };
  const auto [few, small] = facts("1f1b", 1);
  const auto [many, large] = facts("interleaved", 4);
  // 2 (stages - 1) messages per micro-batch; in flight pp, or (chunks - 1) pp + 2 (pp - 1) + 1 of
  // a quarter each.
  EXPECT_EQ(few, 2 * (8 - 1) * 32);
  EXPECT_EQ(many, 2 * (32 - 1) * 32);
  EXPECT_DOUBLE_EQ(small, 8);
  EXPECT_DOUBLE_EQ(large, (3 * 8 + 2 * 7 + 1) / 4.0);
  return {
      "PP crosses nodes because it moves megabytes; interleaving shrinks the bubble by the "
      "number of chunks and costs messages and memory",
      fmt::format("70B, tp 8, stages of 40 blocks: a rank sends {:.0f} MB to the next stage "
                  "({:.2f} ms; one block's forward takes {:.2f} ms) and {:.0f} GB along tp. 8 "
                  "stages, 32 micro-batches, 4 chunks: bubble {:.1f} to {:.1f} %, messages {} "
                  "to {}, in flight {:.1f} to {:.1f} micro-batches",
                  message / 1e6, 1e3 * seconds, 1e3 * layers.block.f, tensor / 1e9, 100 * bubble,
                  100 * chunked, few, many, small, large),
      "holds", Evidence::formula};
}

Row tree_row() {
  const spec::Machine machine = shipped_machine("h100");
  // A ring's all-reduce is a reduce-scatter and an all-gather; a shorter time is a tree's.
  const auto over_ring = [&](const plan::Group& group, double bytes) {
    const double ring =
        plan::collective_seconds(machine, Collective::reduce_scatter, group, bytes) +
        plan::collective_seconds(machine, Collective::all_gather, group, bytes);
    return plan::collective_seconds(machine, Collective::all_reduce, group, bytes) / ring;
  };
  // Returns the bytes from which the ring is as fast.
  const auto border = [&](const plan::Group& group) {
    double bytes = 64e3;
    while (over_ring(group, bytes) < 1 && bytes < 1e12) bytes *= 1.01;
    return bytes;
  };
  const plan::Group near{8, 1}, far{128, 8};  // a node; one rank in each of 128 nodes
  // A ring of n ranks has 2 (n - 1) steps, a tree 2 log2 n.
  const double rate = machine.domain.link.bytes_per_second * machine.domain.reach;
  const double latency = machine.domain.link.latency;
  EXPECT_NEAR(over_ring(near, 64e3),
              2 * (64e3 / rate + 3 * latency) / (2 * 7 * (64e3 / 8 / rate + latency)), 1e-9);
  for (const plan::Group& group : {near, far}) {
    EXPECT_LT(over_ring(group, 64e3), 0.6);
    EXPECT_DOUBLE_EQ(over_ring(group, 10e9), 1);
  }
  EXPECT_GT(border(far), border(near));
  spec::Machine rack = shipped_machine("gb200");
  const auto reduce = [&](int64_t ranks) {
    return plan::collective_seconds(rack, Collective::all_reduce, {ranks, 1}, 1e9);
  };
  const double plain8 = reduce(8), plain72 = reduce(72);
  rack.domain.in_switch_reduction = true;
  const double eight = reduce(8) / plain8, all = reduce(72) / plain72;
  EXPECT_NEAR(all, 0.5, 0.02);
  EXPECT_NEAR(eight, 4.0 / 7, 0.01);
  return {
      "Tree beats ring for small messages; in-network reduction halves the traffic of an "
      "all-reduce",
      fmt::format("64 kB take {:.0f} % of the ring's time over the 8 of a node, {:.0f} % over 128 "
                  "nodes; the ring is as fast from {:.0f} MB and {:.1f} GB on. 1 GB reduced in "
                  "the switch takes {:.2f} of a ring's time over 8 ranks, {:.2f} over 72",
                  100 * over_ring(near, 64e3), 100 * over_ring(far, 64e3), border(near) / 1e6,
                  border(far) / 1e9, eight, all),
      "holds; the factor is N / (2 (N-1)), a half for many ranks", Evidence::formula};
}

Row context_row() {
  const spec::ModelSpec model = shipped_model("llama3-70b");
  const auto& block = spec::typical_block(model);
  EXPECT_EQ(block.heads, 64);
  EXPECT_EQ(block.kv_heads, 8);
  const spec::Machine machine = shipped_machine("h100");
  // One step of ring attention over the network: the transfer of a block's keys and values against
  // the attention of the block.
  const auto bytes = [&](int64_t tokens) {
    return 2.0 * static_cast<double>(tokens * block.kv_heads * block.head_dim) * 2;
  };
  const auto transfer = [&](double size) {
    return plan::message_seconds(machine, machine.domain.size, size);
  };
  const auto ratio = [&](int64_t tokens) {
    const plan::Attention attention{
        {base::DType::bf16, 1, tokens, block.heads, block.kv_heads, block.head_dim, false},
        false,
        2};  // the full square instead of its causal half
    return transfer(bytes(tokens)) /
           plan::attention_seconds(machine.processor, plan::trireme_stack(), attention);
  };
  EXPECT_GT(ratio(128), 1);
  EXPECT_LT(ratio(8192), 0.5);
  int64_t border = 128, latent = 1;
  while (ratio(border) > 1) border += 128;
  while (transfer(bytes(latent)) < 2 * transfer(0)) ++latent;
  EXPECT_LT(latent, border);
  return {
      "Ulysses is capped by the number of heads; ring attention is latency-bound for short "
      "blocks",
      fmt::format("70B: {} heads, {} of keys and values. Ring over the "
                  "network: a block's transfer takes {:.1f} times its attention at 128 tokens, "
                  "{:.2f} at 8,192; it is shorter from about {} tokens on, and mostly latency "
                  "below {}",
                  block.heads, block.kv_heads, ratio(128), ratio(8192), border, latent),
      "Ulysses: 64 ranks, or 8 without copies of keys and values. Rings are bound by transfers "
      "for blocks of hundreds of tokens, by latency only for shorter ones",
      Evidence::regression};
}

}  // namespace

std::vector<Row> placement_rows() {
  return {domain_row(), bloom_row(), rack_row(), stage_row(), tree_row(), context_row()};
}

}  // namespace trireme::tests
