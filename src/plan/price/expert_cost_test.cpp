// SPDX-License-Identifier: Apache-2.0
#include "plan/price/expert_cost.h"

#include <gtest/gtest.h>

#include "plan/price/collective.h"
#include "plan/price/op_time.h"
#include "plan/samples_test.h"
#include "spec/facts/experts/expert_cost.h"

namespace trireme::plan {
namespace {

// 64 experts of width 1,024 in a stream of 2,048, 8 a token.
Job olmoe(int64_t batch = 64, int64_t seq_len = 4096) {
  return job_of("olmoe-1b-7b", batch, seq_len);
}

double grouped(const Job& job, int ep, int64_t rows) {
  const spec::MoeSpec& moe = *spec::moe_of(job.model);
  const spec::OpCost op = spec::grouped_forward_cost(
      {.rows = rows, .groups = moe.router.experts / ep, .out = 2048, .in = 1024},
      base::DType::bf16);
  return grouped_seconds(job, shipped_machine("h100"), job.backend, moe, {.ep = ep}, op);
}

TEST(ExpertCost, a_grouped_product_of_full_tiles_costs_what_a_dense_one_of_its_rows_does) {
  const spec::Machine machine = shipped_machine("h100");
  const int64_t rows = int64_t{64} * 4096;
  const double dense =
      gemm_seconds(machine.processor, {.m = rows, .n = 2048, .k = 1024}, Precision::bf16);
  EXPECT_NEAR(grouped(olmoe(), 1, rows), dense, 0.05 * dense);
}

TEST(ExpertCost, rows_of_an_expert_are_rounded_up_to_a_tile) {
  const Job job = olmoe();
  const int64_t tile = job.backend.expert_tile;
  ASSERT_EQ(tile, 128);
  EXPECT_EQ(grouped(job, 1, 64 * (4 * tile - 127)), grouped(job, 1, 64 * 4 * tile));
  EXPECT_LT(grouped(job, 1, 64 * 3 * tile), grouped(job, 1, 64 * 4 * tile));
}

TEST(ExpertCost, weight_gradients_sum_over_the_rows_of_an_expert) {
  const Job job = olmoe();
  const spec::MoeSpec& moe = *spec::moe_of(job.model);
  const spec::Machine machine = shipped_machine("h100");
  const spec::OpCost op =
      spec::grouped_backward_weight_cost({.rows = 64 * 1024, .groups = 64, .out = 2048, .in = 1024},
                                         base::DType::bf16, base::DType::f32, true);
  const double expected = gemm_seconds(machine.processor,
                                       {.m = 2048,
                                        .n = 1024,
                                        .k = 1024,
                                        .count = 64,
                                        .bytes = static_cast<double>(op.bytes),
                                        .accumulates = true},
                                       Precision::bf16);
  EXPECT_EQ(grouped_seconds(job, machine, job.backend, moe, {}, op), expected);
}

TEST(ExpertCost, the_busiest_rank_along_ep_determines_the_time_of_products) {
  Job job = olmoe();
  const int64_t rows = 64 * 4096;
  const double balanced = grouped(job, 8, rows);
  job.expert_imbalance = 1.5;
  EXPECT_NEAR(grouped(job, 8, rows), 1.5 * balanced, 0.05 * balanced);
  EXPECT_EQ(grouped(job, 1, rows), grouped(olmoe(), 1, rows)) << "one rank has all rows";
  // A token sends at most 8 rows to a rank: all of its rows.
  job.expert_imbalance = 100;
  EXPECT_EQ(busiest_share(job, *spec::moe_of(job.model), 8), 8);
  EXPECT_EQ(busiest_share(job, *spec::moe_of(job.model), 1), 1);
}

TEST(ExpertCost, a_node_gets_one_copy_of_a_row_in_two_levels) {
  const spec::RouterSpec eight{.experts = 256, .chosen = 8};
  EXPECT_EQ(copies_between_nodes(eight, 1), 0);
  // 8 nodes: 8 (1 - (7/8)^8) = 5.25 nodes of a token, 7/8 of them others.
  EXPECT_NEAR(copies_between_nodes(eight, 8), 5.2512 * 7 / 8, 1e-3);
  // Many nodes: every expert is on another one.
  EXPECT_NEAR(copies_between_nodes(eight, 100000), 8, 1e-2);
  const spec::RouterSpec limited{.experts = 256, .chosen = 8, .groups = 8, .chosen_groups = 4};
  EXPECT_NEAR(copies_between_nodes(limited, 8), 4.0 * 7 / 8, 1e-12);
}

TEST(ExpertCost, two_levels_send_less_between_nodes_and_the_same_inside_one) {
  const spec::Machine machine = shipped_machine("h100");
  const spec::MoeSpec moe{.router = {.experts = 256, .chosen = 8}, .ffn = 2048};
  const Job job = olmoe();
  Stack flat = shipped_stack("megatron-core");
  flat.two_level_dispatch = false;
  Stack levels = flat;
  levels.two_level_dispatch = true;
  const std::vector<spec::CommCost> rows = {
      {spec::CommKind::all_to_all, spec::Axis::ep, int64_t{1} << 28, base::DType::bf16}};
  const auto seconds = [&](const Stack& stack, int ep) {
    return expert_seconds(job, machine, stack, moe, {.ep = ep}, rows);
  };
  EXPECT_EQ(seconds(flat, 8), seconds(levels, 8));
  const double copies = copies_between_nodes(moe.router, 8) / 8;
  EXPECT_NEAR(seconds(levels, 64) / seconds(flat, 64), copies / (7.0 / 8), 0.02);
  EXPECT_GT(seconds(flat, 64), seconds(flat, 8));
  levels.ep_overlap = 0.5;
  EXPECT_NEAR(seconds(levels, 8), seconds(flat, 8) / 2, 1e-9);
}

TEST(ExpertCost, the_engine_sends_its_row_budget_and_other_programs_what_there_is) {
  const spec::Machine machine = shipped_machine("h100");
  const auto exchanged = [&](const Stack& stack, const std::string& layout, double imbalance) {
    Job job = olmoe();
    job.expert_imbalance = imbalance;
    return Pricer(job, machine, stack).price(layout_from_text(layout, 8)).at(Term::expert);
  };
  const double tight = exchanged(trireme_stack(), "ep=8 zero=1 micro=8 row-budget=1", 1);
  EXPECT_NEAR(exchanged(trireme_stack(), "ep=8 zero=1 micro=8 row-budget=2", 1), 2 * tight,
              0.05 * tight);
  EXPECT_EQ(exchanged(trireme_stack(), "ep=8 zero=1 micro=8 row-budget=1", 1.5), tight);
  const Stack other = shipped_stack("megatron-core");
  const double balanced = exchanged(other, "ep=8 zero=1 micro=8", 1);
  EXPECT_EQ(exchanged(other, "ep=8 zero=1 micro=8 row-budget=2", 1), balanced);
  EXPECT_NEAR(exchanged(other, "ep=8 zero=1 micro=8", 1.5), 1.5 * balanced, 0.02 * balanced);
}

TEST(ExpertCost, the_price_has_every_product_of_the_chosen_experts) {
  const Job job = olmoe();
  const spec::Machine machine = shipped_machine("h100");
  for (const char* layout : {"zero=1", "ep=8 zero=1", "ep=4 etp=2 zero=1"}) {
    const Price price = Pricer(job, machine, trireme_stack()).price(layout_from_text(layout, 8));
    // 6 FLOPs for each active parameter and token, without the embedding; attention has 4 for each
    // pair, head and column in forward, and 10 in backward.
    const auto tokens = static_cast<double>(job.tokens());
    const double active =
        static_cast<double>(spec::active_parameter_count(job.model)) - 50304.0 * 2048;
    const double attention = 7.0 * 16 * 2048 * (4096 + 1) * tokens;
    EXPECT_NEAR(price.model_flops, 6 * active * tokens + attention, 0.01 * price.model_flops)
        << layout;
  }
}

TEST(ExpertCost, experts_of_a_rank_shrink_with_ep) {
  const Job job = olmoe();
  const spec::Machine machine = shipped_machine("h100");
  Pricer pricer(job, machine, trireme_stack());
  const auto weights = [&](const char* layout) {
    return pricer.price(layout_from_text(layout, 8)).at(Item::weights);
  };
  const double experts = 2.0 * 16 * 64 * 3 * 2048 * 1024;  // bytes of all experts
  EXPECT_NEAR(weights("") - weights("ep=8"), experts * 7 / 8, 1e-3 * experts);
  EXPECT_NEAR(weights("") - weights("ep=4 etp=2"), experts * 7 / 8, 1e-3 * experts);
  // Sharded over all ranks either way.
  EXPECT_NEAR(weights("zero=3"), weights("ep=8 zero=3"), 1e-3 * experts);
}

}  // namespace
}  // namespace trireme::plan
