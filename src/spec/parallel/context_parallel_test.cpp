// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/context_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace trireme::spec {
namespace {

// Llama 3 8B at 131,072 tokens on 8 ranks.
ContextShape llama(ContextKind kind, int ulysses) {
  return {.sequences = 1,
          .seq_len = 131072,
          .heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .cp = 8,
          .ulysses = ulysses,
          .kind = kind};
}

constexpr int64_t own_rows = 131072 / 8;
constexpr int64_t q_width = 32 * 128, k_width = 8 * 128, bf16_bytes = 2, f32_bytes = 4;

TEST(ContextComm, gather_and_ring_send_keys_and_values_to_all_other_ranks) {
  for (const ContextKind kind : {ContextKind::gather, ContextKind::ring}) {
    const ContextComms comms = context_comm(llama(kind, 1));
    EXPECT_EQ(sent_bytes(comms.forward), 7 * 2 * own_rows * k_width * bf16_bytes);
    EXPECT_EQ(sent_bytes(comms.backward), 7 * 2 * own_rows * k_width * (bf16_bytes + f32_bytes));
  }
  EXPECT_EQ(sent_bytes(context_comm(llama(ContextKind::gather, 1)).forward), 469762048);
}

TEST(ContextComm, gather_takes_one_head_of_keys_and_values_at_a_time) {
  const ContextComms comms = context_comm(llama(ContextKind::gather, 1));
  ASSERT_EQ(comms.forward.size(), 1U);
  EXPECT_EQ(comms.forward[0],
            (ContextComm{CommKind::all_gather, 8, 1, 2 * 131072 * 128, base::DType::bf16, 8}));
  ASSERT_EQ(comms.backward.size(), 2U);
  EXPECT_EQ(comms.backward[1],
            (ContextComm{CommKind::reduce_scatter, 8, 1, 2 * 131072 * 128, base::DType::f32, 8}));
}

TEST(ContextComm, ulysses_sends_its_share_of_rows) {
  const ContextComms comms = context_comm(llama(ContextKind::ulysses, 8));
  EXPECT_EQ(sent_bytes(comms.forward), 7 * own_rows * 2 * (q_width + k_width) * bf16_bytes / 8);
  EXPECT_EQ(sent_bytes(comms.forward), 293601280);
  EXPECT_EQ(sent_bytes(comms.backward), sent_bytes(comms.forward));
}

TEST(ContextComm, fewer_kv_heads_than_ranks_are_copied) {
  ContextShape shape = llama(ContextKind::ulysses, 8);
  shape.kv_heads = 2;
  const ContextComms comms = context_comm(shape);
  EXPECT_EQ(sent_bytes(comms.forward),
            7 * own_rows * 2 * q_width * bf16_bytes / 8 + 7 * 2 * own_rows * 128 * bf16_bytes);
  EXPECT_EQ(sent_bytes(comms.backward), sent_bytes(comms.forward));
}

TEST(ContextComm, products_send_what_their_parts_send) {
  for (const ContextKind kind : {ContextKind::ulysses_gather, ContextKind::ulysses_ring}) {
    const ContextComms comms = context_comm(llama(kind, 4));
    EXPECT_EQ(sent_bytes(comms.forward), 3 * own_rows * 2 * (q_width + k_width) * bf16_bytes / 4 +
                                             2 * own_rows * k_width * bf16_bytes);
    EXPECT_EQ(comms.forward.front().stride, 1);
    EXPECT_EQ(comms.forward[1].stride, 4);
    EXPECT_EQ(comms.forward[1].ranks, 2);
  }
  // One side of the product alone.
  EXPECT_EQ(context_comm(llama(ContextKind::ulysses_gather, 1)).forward,
            context_comm(llama(ContextKind::gather, 1)).forward);
  EXPECT_EQ(context_comm(llama(ContextKind::ulysses_ring, 8)).backward,
            context_comm(llama(ContextKind::ulysses, 8)).backward);
}

TEST(ContextComm, one_rank_sends_nothing) {
  ContextShape shape = llama(ContextKind::gather, 1);
  shape.cp = 1;
  EXPECT_TRUE(context_comm(shape).forward.empty());
  EXPECT_TRUE(context_comm(shape).backward.empty());
  EXPECT_EQ(context_scratch_bytes(shape, true), 0);
}

TEST(ContextScratch, holds_two_heads_or_two_neighbours) {
  const ContextShape gather = llama(ContextKind::gather, 1);
  EXPECT_EQ(context_scratch_bytes(gather, false), 2 * 2 * 131072 * 128 * bf16_bytes);
  EXPECT_EQ(context_scratch_bytes(gather, true), 2 * 131072 * 128 * (2 * bf16_bytes + f32_bytes));
  const ContextShape ring = llama(ContextKind::ring, 1);
  EXPECT_EQ(context_scratch_bytes(ring, false), 2 * 2 * own_rows * k_width * bf16_bytes);
  EXPECT_EQ(context_scratch_bytes(ring, true),
            2 * 2 * own_rows * k_width * (bf16_bytes + f32_bytes));
  EXPECT_EQ(context_scratch_bytes(llama(ContextKind::ulysses, 8), true), 0);
}

// Counts pairs row by row.
double counted_balance(ContextSlices slices, int64_t cp, int64_t ulysses, int64_t seq_len) {
  std::vector<double> pairs(static_cast<size_t>(cp / ulysses), 0);
  for (int64_t i = 0; i < seq_len; ++i) {
    int64_t rank = i * cp / seq_len;
    if (slices == ContextSlices::striped) rank = i % cp;
    if (slices == ContextSlices::zigzag) {
      const int64_t chunk = i * 2 * cp / seq_len;
      rank = std::min(chunk, 2 * cp - 1 - chunk);
    }
    pairs[static_cast<size_t>(rank / ulysses)] += static_cast<double>(i + 1);
  }
  double sum = 0;
  for (const double part : pairs) sum += part;
  return std::ranges::max(pairs) / sum * static_cast<double>(pairs.size());
}

TEST(ContextBalance, is_that_of_counted_pairs) {
  for (const ContextSlices slices :
       {ContextSlices::zigzag, ContextSlices::contiguous, ContextSlices::striped}) {
    for (const int cp : {2, 4, 8}) {
      for (const int ulysses : {1, 2, cp}) {
        const ContextKind kind = ContextKind::ulysses_gather;
        EXPECT_NEAR(context_balance(kind, slices, cp, ulysses, 96 * cp),
                    counted_balance(slices, cp, ulysses, 96 * cp), 1e-12)
            << name_of(slices) << " cp " << cp << " ulysses " << ulysses;
      }
    }
  }
  EXPECT_NEAR(context_balance(ContextKind::ring, ContextSlices::contiguous, 16, 1, 131072),
              31.0 / 16, 1e-4);
  EXPECT_LT(context_balance(ContextKind::ring, ContextSlices::striped, 16, 1, 131072), 1.001);
  EXPECT_EQ(context_balance(ContextKind::ulysses, ContextSlices::contiguous, 16, 16, 131072), 1);
}

TEST(ContextBlock, divides_a_chunk) {
  EXPECT_EQ(context_block(131072, 8), 512);
  EXPECT_EQ(context_block(4 * 300, 2), 300);
  EXPECT_EQ(context_block(4 * 640, 2), 128);
  EXPECT_EQ(context_block(4 * 768, 2), 256);
  EXPECT_EQ(context_block(4 * 641, 2), 0);
}

}  // namespace
}  // namespace trireme::spec
