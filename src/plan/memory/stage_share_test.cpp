// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/stage_share.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/samples_test.h"
#include "plan/search/confirm.h"
#include "spec/layout/layout_text.h"

namespace trireme::plan {
namespace {

// Returns the number of a rank's blocks in the engine's plan.
double blocks_in(const spec::ModelSpec& model, const spec::Plan& plan, int rank) {
  const std::vector<int> layers = spec::layers_of_rank(model, plan, rank);
  return static_cast<double>(std::ranges::count_if(layers, [&](int layer) {
    return std::holds_alternative<spec::BlockSpec>(model.layers[static_cast<size_t>(layer)]);
  }));
}

TEST(StageShare, every_rank_has_the_layers_of_the_engines_plan) {
  const spec::Machine machine = shipped_machine("h100");
  Dice dice(9);
  for (const char* name : {"gpt2-124m", "qwen2-0.5b", "llama-8b", "llama3-70b"}) {
    const Job job = job_of(name, 64, 4096);
    Pricer pricer(job, machine, trireme_stack());
    for (int i = 0; i < 40; ++i) {
      const Layout l = runnable_layout(dice, job);
      const Confirmed engine = confirm(job, machine, trireme_stack(), l);
      const RankTimes times = rank_times(job, l, trireme_stack(), pricer.layers(l));
      for (int rank = 0; rank < l.pp; ++rank) {
        const RankShare share = share_of(l, times.cut, rank);
        ASSERT_EQ(share.blocks, blocks_in(job.model, engine.plan, rank))
            << name << ": " << to_text(l) << " rank " << rank;
        EXPECT_EQ(share.has_embedding, rank == 0);
        EXPECT_EQ(share.has_head, rank == (schedule::named(l.schedule).is_v ? 0 : l.pp - 1));
      }
    }
  }
}

TEST(StageShare, the_end_ranks_include_the_slowest) {
  const spec::Machine machine = shipped_machine("h100");
  Dice dice(10);
  for (const char* name : {"gpt2-1.5b", "llama3-70b"}) {
    const Job job = job_of(name, 64, 4096);
    Pricer pricer(job, machine, trireme_stack());
    for (int i = 0; i < 100; ++i) {
      const Layout l = runnable_layout(dice, job);
      const LayerCosts& costs = pricer.layers(l);
      const RankTimes times = rank_times(job, l, trireme_stack(), costs);
      double longest = 0, all = 0;
      for (int rank = 0; rank < l.pp; ++rank) {
        const double own = seconds_of(trireme_stack(), costs, share_of(l, times.cut, rank)).total();
        longest = std::max(longest, own);
        all += own;
      }
      EXPECT_DOUBLE_EQ(times.slowest_seconds.total(), longest) << name << ": " << to_text(l);
      EXPECT_NEAR(times.all_seconds, all, 1e-9 * all);
    }
  }
}

TEST(StageShare, equal_shares_do_not_count_embedding_and_head) {
  const Job job = job_of("gpt3-175b", 64, 2048);
  const spec::Machine machine = shipped_machine("a100-80gb");
  const Stack megatron = shipped_stack("megatron-2022");
  Pricer pricer(job, machine, megatron);
  const Layout l = layout_from_text("tp=8 pp=8 interleaved=3", 64);
  const RankTimes times = rank_times(job, l, megatron, pricer.layers(l));
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(share_of(l, times.cut, rank).blocks, 12);
  }
  EXPECT_TRUE(times.slowest.has_head);
}

TEST(StageShare, blocks_with_and_without_experts_are_counted_apart) {
  const Job job = with_experts(job_of("llama-8b", 64, 4096), 8, 2, 1024, 0, 10);
  const spec::Machine machine = shipped_machine("h100");
  const Stack megatron = shipped_stack("megatron-core");
  const Layout l = layout_from_text("pp=4", 4);
  const StageBlocks cut =
      rank_times(job, l, megatron, Pricer(job, machine, megatron).layers(l)).cut;
  EXPECT_EQ(share_of(l, cut, 0).other_blocks, 8);
  EXPECT_EQ(share_of(l, cut, 0).blocks, 0);
  EXPECT_EQ(share_of(l, cut, 1).other_blocks, 2);
  EXPECT_EQ(share_of(l, cut, 1).blocks, 6);
  EXPECT_EQ(share_of(l, cut, 3).other_blocks, 0);
}

// Blocks of two kinds have no closed form.
TEST(StageShare, stages_of_a_model_with_some_experts_are_those_of_the_engines_plan) {
  const spec::Machine machine = shipped_machine("h100");
  const Job job = with_experts(job_of("llama-8b", 64, 1024), 16, 2, 2048, 512, 3);
  Pricer pricer(job, machine, trireme_stack());
  Dice dice(11);
  for (int i = 0; i < 40; ++i) {
    const Layout l = runnable_layout(dice, job);
    const Confirmed engine = confirm(job, machine, trireme_stack(), l);
    const RankTimes times = rank_times(job, l, trireme_stack(), pricer.layers(l));
    for (int rank = 0; rank < l.pp; ++rank) {
      ASSERT_EQ(share_of(l, times.cut, rank).all_blocks(), blocks_in(job.model, engine.plan, rank))
          << to_text(l) << " rank " << rank;
    }
  }
}

TEST(StageShare, both_arms_of_a_v_are_on_one_rank) {
  const Layout v = layout_from_text("pp=4 zb-v", 4);
  EXPECT_EQ(stage_of(v, 0, 0), 0);
  EXPECT_EQ(stage_of(v, 0, 1), 7);
  EXPECT_EQ(stage_of(v, 3, 1), 4);
  const Layout ring = layout_from_text("pp=4 interleaved=2", 4);
  EXPECT_EQ(stage_of(ring, 1, 1), 5);
}

}  // namespace
}  // namespace trireme::plan
