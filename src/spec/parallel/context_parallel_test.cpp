// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/context_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "spec/facts/facts.h"
#include "spec/parallel/token_slice.h"

namespace trireme::spec {
namespace {

// ---- bytes that a rank sends for the attention of one block: Llama 3 8B at 131,072 tokens on 8
// ranks, in bf16

constexpr int64_t seq_len_of_block = 131072, rows_of_rank = seq_len_of_block / 8;
constexpr int64_t q_width = 32 * 128, k_width = 8 * 128, bf16_bytes = 2, f32_bytes = 4;

struct Sent {
  int64_t forward = 0, backward = 0;
};
Sent sent_by(int ulysses, bool is_ring, int64_t kv_heads = 8) {
  const ModelSpec model = make_model({.name = "llama",
                                      .family = Family::llama,
                                      .layers = 1,
                                      .hidden = 4096,
                                      .heads = 32,
                                      .kv_heads = kv_heads,
                                      .ffn = 14336,
                                      .vocab = 128,
                                      .max_seq = seq_len_of_block});
  LocalShape shape;
  shape.tokens = rows_of_rank;
  shape.seq_len = seq_len_of_block;
  shape.head_chunk_rows = rows_of_rank;
  shape.mesh[Axis::cp] = 8;
  shape.ulysses = ulysses;
  shape.is_ring = is_ring;
  const Facts f =
      facts(model, 1, shape, recipe_of(Precision::bf16), Recompute::none, cuda_backend(false));
  return {sent_bytes(f.f_comm, Axis::cp, shape.mesh), sent_bytes(f.b_comm, Axis::cp, shape.mesh)};
}

TEST(ContextBytes, gather_and_ring_send_keys_and_values_to_all_other_ranks) {
  const int64_t keys = 2 * rows_of_rank * k_width;
  const Sent gather = sent_by(1, false), ring = sent_by(1, true);
  EXPECT_EQ(gather.forward, 469762048);
  EXPECT_EQ(gather.forward, 7 * keys * bf16_bytes);
  EXPECT_EQ(gather.backward, 7 * keys * (bf16_bytes + f32_bytes));
  EXPECT_EQ(ring.forward, gather.forward);
  EXPECT_EQ(ring.backward, 7 * keys * bf16_bytes + 8 * keys * f32_bytes);
}

TEST(ContextBytes, ulysses_sends_its_share_of_rows) {
  const Sent sent = sent_by(8, false);
  EXPECT_EQ(sent.forward, 293601280);
  EXPECT_EQ(sent.forward, 7 * rows_of_rank * 2 * (q_width + k_width) * bf16_bytes / 8);
  EXPECT_EQ(sent.backward, sent.forward);
  // Fewer heads of keys and values than ranks are copied.
  const Sent copied = sent_by(8, false, 2);
  EXPECT_EQ(copied.forward, 7 * rows_of_rank * 2 * q_width * bf16_bytes / 8 +
                                7 * 2 * rows_of_rank * 128 * bf16_bytes);
}

TEST(ContextBytes, a_product_sends_what_its_parts_send) {
  EXPECT_EQ(sent_by(4, false).forward, 3 * rows_of_rank * 2 * (q_width + k_width) * bf16_bytes / 4 +
                                           2 * rows_of_rank * k_width * bf16_bytes);
}

// ---- balance

TEST(ContextBalance, is_that_of_the_rows_that_groups_have) {
  for (const ContextSlices slices : {ContextSlices::zigzag, ContextSlices::contiguous,
                                     ContextSlices::striped, ContextSlices::blocks}) {
    for (const int groups : {1, 2, 4, 8}) {
      const ContextSplit split{
          .sequences = 2, .seq_len = 96 * groups, .groups = groups, .slices = slices};
      const std::vector<int64_t> pairs = pairs_of_groups(split, equal_offsets(split));
      double sum = 0;
      for (const int64_t of_group : pairs) sum += static_cast<double>(of_group);
      const double counted = static_cast<double>(std::ranges::max(pairs)) * groups / sum;
      EXPECT_NEAR(context_balance(slices, groups, split.seq_len), counted, 1e-12)
          << name_of(slices) << ", " << groups << " groups";
    }
  }
  EXPECT_NEAR(context_balance(ContextSlices::contiguous, 16, 131072), 31.0 / 16, 1e-4);
  EXPECT_LT(context_balance(ContextSlices::striped, 16, 131072), 1.001);
}

}  // namespace
}  // namespace trireme::spec
