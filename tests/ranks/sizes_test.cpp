// SPDX-License-Identifier: Apache-2.0
// Measured bytes against formulas written by hand from the shapes of one small model, which use no
// function of spec/. The model is a llama of two blocks in fp32: width 128, 4 heads of 32, 2
// key/value heads, feed-forward 256, vocabulary 256. A rank runs two micro-batches of 32 sequences
// of 6 tokens, one at a time, so T = 192. Every tensor is a multiple of 256 bytes, except where a
// comment names the padding.
#include <gtest/gtest.h>

#include <functional>

#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {
namespace {

constexpr int64_t f32_bytes = 4;
constexpr int64_t rope_elements = 6 * 32;       // RoPE: [seq_len, head size]
constexpr int64_t stream_elements = 192 * 128;  // [T, width]

// Elements of the parameters on one rank.
constexpr int64_t table_elements = 256 * 128;
constexpr int64_t matrix_elements = 256 * 128                  // Wqkv: 4 + 2 * 2 heads of 32
                                    + 128 * 128                // Wo
                                    + 512 * 128                // gate and up
                                    + 128 * 256;               // down
constexpr int64_t block_elements = matrix_elements + 2 * 128;  // and two norms
constexpr int64_t model_elements = table_elements + 2 * block_elements + (128 + table_elements);
static_assert(model_elements == 361'088);
// Each of two data ranks holds a multiple of 128 elements of a layer: only the head needs padding.
constexpr int64_t two_rank_elements = model_elements + 128;
// Each of two ranks along tp has half of every matrix and all norms.
constexpr int64_t tp_rank_elements =
    table_elements / 2 + 2 * (matrix_elements / 2 + 2 * 128) + (128 + table_elements / 2);

// What ranks gather at the end of a step: 17 sums and counts, and the squares of four layers.
constexpr int64_t record_bytes = 17 * 8 + 4 * 8;
// A record; fixed-point sums of 72 bytes of four layers and of the updates; the state of the step
// and the totals of all ranks. Each is padded to a multiple of 256 bytes.
constexpr int64_t step_state_bytes = 256 + 512 + 256;

Layout small_llama() {
  Layout layout;
  layout.dims = {.name = "sizes-llama",
                 .family = spec::Family::llama,
                 .layers = 2,
                 .hidden = 128,
                 .heads = 4,
                 .kv_heads = 2,
                 .head_dim = 32,
                 .ffn = 256,
                 .vocab = 256,
                 .max_seq = 6,
                 .tied_head = false};
  layout.logical_dp = 1;
  layout.microbatches = 2;
  layout.sequences = 32;
  return layout;
}

Layout zero_over_two(int stage) {
  Layout layout = small_llama();
  layout.zero = layout.logical_dp = 2;
  layout.stage = stage;
  if (stage >= 2) layout.reduce = spec::ReduceWhen::each;
  return layout;
}

Layout tp_of_two() {
  Layout layout = small_llama();
  layout.tp = 2;
  return layout;
}

// Runs one step and calls `check` on every rank with what it took and sent.
void measure(const Layout& layout,
             const std::function<void(const spec::MemoryTable& memory,
                                      const spec::TrafficTable& sent)>& check) {
  run_layout(layout, [&](RankRig& rig) {
    SCOPED_TRACE(to_string(layout));  // in the thread of the rank
    const spec::TrafficTable before = rig.engine.traffic();
    rig.engine.step(rig.source, 1e-3);
    rig.engine.compute().synchronize();
    spec::TrafficTable sent = rig.engine.traffic();
    sent.gather_params -= before.gather_params;  // of the first weights
    check(rig.engine.measured(), sent);
  });
}

TEST(SizesTest, params_are_whole_except_under_zero_3_and_halved_by_tp) {
  const auto expect = [](const Layout& layout, int64_t elements) {
    measure(layout, [elements](const spec::MemoryTable& m, const spec::TrafficTable&) {
      EXPECT_EQ(m.params, f32_bytes * (elements + rope_elements));
    });
  };
  expect(small_llama(), model_elements);
  expect(zero_over_two(1), two_rank_elements);
  expect(zero_over_two(2), two_rank_elements);
  expect(zero_over_two(3), two_rank_elements / 2);
  expect(tp_of_two(), tp_rank_elements);
}

TEST(SizesTest, grads_are_halved_from_zero_2_on) {
  const auto expect = [](const Layout& layout, int64_t elements) {
    measure(layout, [elements](const spec::MemoryTable& m, const spec::TrafficTable&) {
      EXPECT_EQ(m.grads, f32_bytes * elements);
    });
  };
  expect(small_llama(), model_elements);
  expect(zero_over_two(1), two_rank_elements);
  expect(zero_over_two(2), two_rank_elements / 2);
  expect(zero_over_two(3), two_rank_elements / 2);
  expect(tp_of_two(), tp_rank_elements);
}

TEST(SizesTest, optimizer_state_is_two_moments_and_halved_from_zero_1_on) {
  const auto expect = [](const Layout& layout, int64_t elements) {
    measure(layout, [elements](const spec::MemoryTable& m, const spec::TrafficTable&) {
      EXPECT_EQ(m.optim, 2 * f32_bytes * elements + step_state_bytes);
    });
  };
  expect(small_llama(), model_elements);
  for (const int stage : {1, 2, 3}) expect(zero_over_two(stage), two_rank_elements / 2);
  expect(tp_of_two(), tp_rank_elements);
}

TEST(SizesTest, bf16_weights_have_an_fp32_master) {
  Layout layout = small_llama();
  layout.recipe = "bf16";
  measure(layout, [](const spec::MemoryTable& m, const spec::TrafficTable&) {
    EXPECT_EQ(m.params, 2 * model_elements + f32_bytes * rope_elements);
    EXPECT_EQ(m.grads, f32_bytes * model_elements);
    EXPECT_EQ(m.optim, 3 * f32_bytes * model_elements + step_state_bytes);
  });
}

// `cut` is the number of ranks that share heads and feed-forward.
void expect_stash(const spec::MemoryTable& m, int64_t cut) {
  constexpr int64_t stats = 192;  // one value a token
  const int64_t qkv = 192 * 256 / cut, lse = 4 * 192 / cut, heads = stream_elements / cut;
  const int64_t up = 192 * 512 / cut, act = 192 * 256 / cut;
  // A block keeps until B: x, x2, the statistics of two norms, qkv and the attention's; the head
  // keeps x, dh and its statistics.
  EXPECT_EQ(m.stash_f_to_b, f32_bytes * (2 * (2 * stream_elements + 2 * stats + qkv + lse) +
                                         2 * stream_elements + stats));
  // Until W: h1, h2, the heads' outputs, up (dup takes its place) and act.
  EXPECT_EQ(m.stash_f_to_w, f32_bytes * 2 * (2 * stream_elements + heads + up + act));
  // One block at a time: dqkv and dx2.
  EXPECT_EQ(m.stash_b_to_w, f32_bytes * (qkv + stream_elements));
  // Gradients between layers, of even and of odd ones.
  EXPECT_EQ(m.stash_stream, f32_bytes * 2 * stream_elements);
  EXPECT_EQ(m.stash_inputs + m.stash_gradients + m.stash_recompute + m.stash_gaps, 0);
}

TEST(SizesTest, the_stash_holds_the_activations_of_one_micro_batch) {
  for (const Layout& layout : {small_llama(), zero_over_two(1), zero_over_two(3)}) {
    measure(layout,
            [](const spec::MemoryTable& m, const spec::TrafficTable&) { expect_stash(m, 1); });
  }
  measure(tp_of_two(),
          [](const spec::MemoryTable& m, const spec::TrafficTable&) { expect_stash(m, 2); });
}

TEST(SizesTest, comm_buffers_hold_the_largest_layer) {
  const auto expect = [](const Layout& layout, int64_t bytes) {
    measure(layout, [bytes](const spec::MemoryTable& m, const spec::TrafficTable&) {
      EXPECT_EQ(m.comm, bytes);
    });
  };
  constexpr int64_t records = 512;  // of two ranks, record_bytes each, padded
  // Half a block from each of two ranks, on its way into a sum.
  constexpr int64_t received = f32_bytes * block_elements;
  expect(small_llama(), 0);
  expect(zero_over_two(1), received + records);
  // And whole gradients of two blocks; and under ZeRO-3 whole parameters of two.
  expect(zero_over_two(2), received + records + f32_bytes * 2 * block_elements);
  expect(zero_over_two(3), received + records + f32_bytes * 4 * block_elements);
  expect(tp_of_two(), f32_bytes * stream_elements + records);
}

TEST(SizesTest, zero_sends_half_of_each_gradient_and_of_each_parameter) {
  constexpr int64_t half = f32_bytes * two_rank_elements / 2;
  const auto expect = [](int stage, int64_t reductions, int64_t gathers) {
    measure(zero_over_two(stage), [=](const spec::MemoryTable&, const spec::TrafficTable& sent) {
      EXPECT_EQ(sent.reduce_grads, reductions * half);
      EXPECT_EQ(sent.gather_params, gathers * half);
      EXPECT_EQ(sent.gather_grads, 0);
      EXPECT_EQ(sent.step_sums, record_bytes);
    });
  };
  expect(1, 1, 1);
  expect(2, 2, 1);  // a reduction for each of two micro-batches
  expect(3, 2, 4);  // a gather for each forward and each backward
}

TEST(SizesTest, tp_sums_the_stream_twice_a_block_in_each_direction) {
  measure(tp_of_two(), [](const spec::MemoryTable&, const spec::TrafficTable& sent) {
    // A sum over two ranks: each sends half of its part, then half of the sum.
    constexpr int64_t sum = f32_bytes * stream_elements;
    // The head sends three values a token for the loss, and sums its input gradient in small
    // pieces, of which each rank sends all.
    constexpr int64_t head = f32_bytes * 3 * 192 + f32_bytes * stream_elements;
    EXPECT_EQ(sent.tp_forward, 2 * ((1 + 2 * 2) * sum + head));
    EXPECT_EQ(sent.tp_backward, 2 * (2 * 2) * sum);
    EXPECT_EQ(sent.tp_grads, 0);
  });
}

}  // namespace
}  // namespace trireme::tests
