// SPDX-License-Identifier: Apache-2.0
#include "spec/context/token_slice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace trireme::spec {
namespace {

constexpr ContextSlices every_slices[] = {ContextSlices::zigzag, ContextSlices::contiguous,
                                        ContextSlices::striped, ContextSlices::blocks};

// Returns random borders of documents; every sequence begins one.
std::vector<int32_t> random_offsets(const ContextSplit& split, std::mt19937_64& random,
                                    uint64_t mean_length) {
  std::vector<int32_t> offsets;
  for (int64_t row = 0; row < split.tokens(); ++row) {
    if (row % split.seq_len == 0 || random() % mean_length == 0) {
      offsets.push_back(static_cast<int32_t>(row));
    }
  }
  offsets.push_back(static_cast<int32_t>(split.tokens()));
  return offsets;
}

// Calls `body` for many splits and documents.
template <typename Body>
void for_all_splits(Body body) {
  std::mt19937_64 random(5);
  for (const ContextSlices slices : every_slices) {
    for (const int groups : {1, 2, 3, 4, 8}) {
      for (const int ulysses : {1, 2, 4}) {
        for (const int64_t sequences : {1, 3}) {
          for (const bool is_ring : {false, true}) {
            const ContextSplit split{.sequences = sequences,
                                     .seq_len = 2L * groups * ulysses * 3,
                                     .ulysses = ulysses,
                                     .groups = groups,
                                     .slices = slices,
                                     .is_ring = is_ring};
            SCOPED_TRACE(testing::Message() << name_of(slices) << " of " << groups << " x "
                                            << ulysses << " ranks, " << sequences << " sequences");
            body(split, equal_offsets(split));
            body(split, random_offsets(split, random, 4));
          }
        }
      }
    }
  }
}

TEST(TokenSlice, ranks_share_all_rows_in_ascending_order) {
  for_all_splits([](const ContextSplit& split, const std::vector<int32_t>& offsets) {
    std::vector<int> owners(static_cast<size_t>(split.tokens()), 0);
    Rows by_groups;
    for (int rank = 0; rank < split.cp(); ++rank) {
      const Rows rows = rank_rows(split, rank, offsets);
      EXPECT_EQ(std::ssize(rows), split.rank_tokens());
      EXPECT_TRUE(std::ranges::is_sorted(rows));
      for (const int32_t row : rows) ++owners.at(static_cast<size_t>(row));
      by_groups.insert(by_groups.end(), rows.begin(), rows.end());
    }
    EXPECT_EQ(std::ranges::count(owners, 1), split.tokens());
    // The ranks of a group have its rows, one after the other.
    EXPECT_EQ(by_groups, gathered_rows(split, offsets));
    for (int group = 0; group < split.groups; ++group) {
      EXPECT_TRUE(std::ranges::is_sorted(group_rows(split, group, offsets)));
    }
  });
}

TEST(TokenSlice, slices_are_those_that_their_names_promise) {
  ContextSplit split{.seq_len = 12, .groups = 3};
  const std::vector<int32_t> offsets = equal_offsets(split);
  EXPECT_EQ(group_rows(split, 0, offsets), (Rows{0, 1, 10, 11}));
  EXPECT_EQ(group_rows(split, 2, offsets), (Rows{4, 5, 6, 7}));
  split.slices = ContextSlices::contiguous;
  EXPECT_EQ(group_rows(split, 1, offsets), (Rows{4, 5, 6, 7}));
  split.slices = ContextSlices::striped;
  EXPECT_EQ(group_rows(split, 1, offsets), (Rows{1, 4, 7, 10}));
  // Blocks of two rows: the last has the most pairs, then the one before.
  split.slices = ContextSlices::blocks;
  EXPECT_EQ(block_tokens(split), 2);
  EXPECT_EQ(group_rows(split, 0, offsets), (Rows{0, 1, 10, 11}));
  split.sequences = 2;
  split.slices = ContextSlices::zigzag;
  EXPECT_EQ(group_rows(split, 1, equal_offsets(split)), (Rows{2, 3, 8, 9, 14, 15, 20, 21}));
}

// A query sees the rows of its document up to itself, and no others.
TEST(TokenSlice, key_ranges_are_the_causal_rows_of_the_document) {
  for_all_splits([](const ContextSplit& split, const std::vector<int32_t>& offsets) {
    if (split.ulysses > 1) return;  // groups see the same
    for (int group = 0; group < split.groups; ++group) {
      const Rows queries = group_rows(split, group, offsets);
      std::vector<Rows> seen(queries.size());
      for (int source = 0; source < split.key_sources(); ++source) {
        const KeyRanges ranges = keys_of_source(split, group, source, offsets);
        Rows keys(static_cast<size_t>(split.tokens()));
        std::iota(keys.begin(), keys.end(), 0);
        if (split.is_ring) keys = group_rows(split, source, offsets);
        ASSERT_EQ(ranges.begin.size(), queries.size());
        for (size_t t = 0; t < queries.size(); ++t) {
          ASSERT_LE(ranges.end[t], std::ssize(keys));
          for (int32_t i = ranges.begin[t]; i < ranges.end[t]; ++i) {
            seen[t].push_back(keys[static_cast<size_t>(i)]);
          }
        }
      }
      int64_t pairs = 0;
      for (size_t t = 0; t < queries.size(); ++t) {
        std::ranges::sort(seen[t]);
        const auto next = std::ranges::upper_bound(offsets, queries[t]);
        Rows expected(static_cast<size_t>(queries[t] + 1 - *(next - 1)));
        std::iota(expected.begin(), expected.end(), *(next - 1));
        EXPECT_EQ(seen[t], expected) << "row " << queries[t];
        pairs += std::ssize(expected);
      }
      EXPECT_EQ(pairs, pairs_of_groups(split, offsets)[static_cast<size_t>(group)]);
    }
  });
}

double balance(const ContextSplit& split, const std::vector<int32_t>& offsets) {
  const std::vector<int64_t> pairs = pairs_of_groups(split, offsets);
  const int64_t sum = std::accumulate(pairs.begin(), pairs.end(), int64_t{0});
  return static_cast<double>(std::ranges::max(pairs)) * split.groups / static_cast<double>(sum);
}

TEST(TokenSlice, zigzag_balances_one_document_and_contiguous_does_not) {
  for (const int groups : {2, 4, 8, 16}) {
    ContextSplit split{.seq_len = 4096, .groups = groups};
    const std::vector<int32_t> offsets = equal_offsets(split);
    EXPECT_LE(balance(split, offsets), 1.001);
    split.slices = ContextSlices::blocks;
    EXPECT_LE(balance(split, offsets), 1.001);
    split.slices = ContextSlices::striped;
    EXPECT_LE(balance(split, offsets), 1.005);
    split.slices = ContextSlices::contiguous;
    EXPECT_NEAR(balance(split, offsets), (2.0 * groups - 1) / groups, 0.001 * groups);
  }
}

TEST(TokenSlice, blocks_balance_packed_documents_better_than_zigzag) {
  std::mt19937_64 random(9);
  double zigzag = 0, blocks = 0;
  constexpr int rounds = 20;
  for (int i = 0; i < rounds; ++i) {
    ContextSplit split{.seq_len = 32768, .groups = 4};
    const std::vector<int32_t> offsets = random_offsets(split, random, 4000);
    zigzag += balance(split, offsets) / rounds;
    split.slices = ContextSlices::blocks;
    EXPECT_EQ(block_tokens(split), 512);
    EXPECT_LE(balance(split, offsets), 1.15);
    blocks += balance(split, offsets) / rounds;
  }
  EXPECT_LT(blocks - 1, 0.25 * (zigzag - 1)) << "zigzag " << zigzag << ", blocks " << blocks;
}

}  // namespace
}  // namespace trireme::spec
