// SPDX-License-Identifier: Apache-2.0
// fp16 on several ranks: the bits of one rank on every data layout and in pipelines, also after a
// step that overflows on one rank; near one rank with tensor parallelism.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/ranks/near_rig.h"

namespace trireme::tests {
namespace {

using spec::ReduceWhen;

spec::ModelDims half_sized(spec::ModelDims dims) {
  dims.name += "-even";
  dims.layers = 4;
  dims.hidden = 16;
  dims.heads = 4;
  dims.kv_heads = dims.family == spec::Family::gpt2 ? 4 : 2;
  dims.head_dim = 4;
  dims.ffn = 24;
  dims.vocab = 37;
  return dims;
}

Layout half_layout(const spec::ModelDims& dims) {
  return {.dims = half_sized(dims), .recipe = "fp16", .logical_dp = 4, .microbatches = 2, .sequences = 8};
}

TEST(Float16RanksTest, data_layouts_and_pipelines_have_the_bits_of_one_rank) {
  constexpr int steps = 4;
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama()}) {
    Layout layout = half_layout(dims);
    const std::string expected = train_layout(layout, steps);
    layout.dp = 4;
    EXPECT_EQ(train_layout(layout, steps), expected) << to_string(layout);
    layout.dp = 1;
    layout.zero = 2;
    layout.stage = 1;
    EXPECT_EQ(train_layout(layout, steps), expected) << to_string(layout);
    layout.zero = 1;
    layout.stage = 0;
    layout.pp = 2;
    EXPECT_EQ(train_layout(layout, steps), expected) << to_string(layout);
    layout = half_layout(dims);
    layout.reduce = ReduceWhen::each;
    const std::string each = train_layout(layout, steps);
    for (const int stage : {2, 3}) {
      layout.zero = stage == 2 ? 4 : 2;
      layout.dp = stage == 2 ? 1 : 2;
      layout.stage = stage;
      EXPECT_EQ(train_layout(layout, steps), each) << to_string(layout);
    }
  }
}

TEST(Float16RanksTest, tensor_parallel_is_near_one_rank) {
  for (const bool sequence_parallel : {false, true}) {
    Layout layout = half_layout(sequence_parallel ? tiny_gpt2() : tiny_llama());
    layout.logical_dp = 2;
    layout.dp = 2;
    layout.tp = 2;
    layout.sequence_parallel = sequence_parallel;
    // fp16 has three bits more than bf16, whose bound is 3e-2.
    expect_near_one_rank(layout, 4e-3);
  }
}

// A weight that is too large for fp16: every rank sees the overflow in the norm of all.
TEST(Float16RanksTest, all_ranks_lower_the_scale_together) {
  Layout layout = half_layout(tiny_llama());
  layout.zero = 4;
  layout.stage = 1;
  run_layout(layout, [](RankRig& rig) {
    const std::string name = "blocks.0.down.weight";
    const std::vector<float> good = rig.engine.read_weights(name);
    std::vector<float> bad = good;
    bad[5] = 1e6F;
    for (int step = 0; step < 4; ++step) {
      const bool overflows = step == 1 || step == 2;
      if (step == 1) rig.engine.write_weights(name, bad);
      if (step == 3) rig.engine.write_weights(name, good);
      rig.engine.step(rig.source, 0.0);
      rig.next_step();
      const engine::StepReport report = rig.engine.report();
      EXPECT_EQ(report.was_skipped, overflows) << step;
      EXPECT_EQ(report.loss_scale, step == 3 ? 32768 : 65536) << step;
    }
    EXPECT_EQ(rig.engine.report().not_finite, 2);
  });
}

}  // namespace
}  // namespace trireme::tests
