// SPDX-License-Identifier: Apache-2.0
// Pipelines: what the schedule explains, and stages that another cut would balance.
#include <gtest/gtest.h>

#include "analysis/diagnosis.h"
#include "analysis/made_run_test.h"
#include "analysis/pipeline_bubble.h"
#include "spec/plan.h"

namespace trireme::analysis {
namespace {

using obs::RankColumn;

constexpr int microbatches = 4;

// Two stages over six blocks, of which the first has `blocks`.
RunRecord piped_run(int blocks, double noise = 0) {
  const spec::ModelSpec model = spec::make_model(
      {.layers = 6, .hidden = 32, .heads = 2, .ffn = 64, .vocab = 64, .max_seq = 32});
  spec::Layout layout{.pp = 2};
  layout.schedule = schedule::Kind::one_f_one_b;
  layout.first_layers = {0, blocks + 1};
  layout.accumulation = microbatches;
  const spec::Plan plan = spec::solve_or_throw(model, {.seq_len = 16}, layout, {});
  MadeRun made{.stages = 2, .ranks_per_stage = 1, .noise = noise, .hit_share = 0};
  made.plant = [blocks](int, int rank, obs::RankSample& sample) {
    const double layers = rank == 0 ? blocks + 0.1 : 6 - blocks + 0.3;
    sample[RankColumn::compute_seconds] *= static_cast<float>(layers / 3.2);
  };
  RunRecord run = made_run(made);
  run.plan = spec::to_json(plan);
  return run;
}

TEST(PipelineTest, the_bubble_of_equal_stages_is_that_of_theory) {
  RunRecord run = piped_run(3);
  // Equal stages of 1F1B wait (p - 1) / m of their compute.
  MadeRun made{.stages = 2, .ranks_per_stage = 1, .noise = 0, .hit_share = 0};
  const base::Json plan = run.plan;
  run = made_run(made);
  run.plan = plan;
  EXPECT_NEAR(pipeline_bubble(run, RankView(run, 1)), 0.1 / microbatches, 1e-6);
  run.plan = nullptr;
  EXPECT_EQ(pipeline_bubble(run, RankView(run, 1)), 0);
}

TEST(PipelineTest, an_uneven_cut_is_named_and_an_even_one_is_not) {
  for (const int blocks : {1, 5}) {
    const Diagnosis diagnosis = diagnose(piped_run(blocks, 0.03));
    ASSERT_EQ(diagnosis.findings.size(), 1U) << blocks;
    EXPECT_EQ(diagnosis.findings.front().cause, Cause::stage_imbalance);
    EXPECT_EQ(diagnosis.findings.front().stage, blocks == 1 ? 1 : 0);
    EXPECT_EQ(diagnosis.findings.front().rank, -1);
  }
  EXPECT_TRUE(diagnose(piped_run(3, 0.03)).findings.empty());
}

}  // namespace
}  // namespace trireme::analysis
