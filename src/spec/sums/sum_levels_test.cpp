// SPDX-License-Identifier: Apache-2.0
#include "spec/sums/sum_levels.h"

#include <gtest/gtest.h>

namespace trireme::spec {
namespace {

std::vector<std::vector<Range>> hosted(int64_t leaves, int ranks) {
  std::vector<std::vector<Range>> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back(tree_cover(leaves, leaves_of_rank(leaves, ranks, rank)));
  }
  return parts;
}

std::vector<int> blocks(int nodes, int places) {
  std::vector<int> all;
  for (int rank = 0; rank < nodes * places; ++rank) all.push_back(rank / places);
  return all;
}

// Bytes are shares of the result of a rank: b / R.
TEST(SumLevels, send_what_a_ring_sends_and_cross_the_network_less) {
  for (const int nodes : {2, 3, 4, 8}) {
    for (const int places : {2, 4, 8}) {
      const int ranks = nodes * places;
      const auto parts = hosted(ranks, ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        const SharesSent sent = shares_sent(ranks, parts, blocks(nodes, places), rank);
        EXPECT_EQ(sent.all, ranks - 1);
        EXPECT_EQ(sent.far, nodes - 1);  // a ring: (R-1) / places of every rank
        EXPECT_LE(sent.far * places, ranks - 1);
      }
    }
  }
}

TEST(SumLevels, need_several_ranks_on_each_of_several_nodes_and_as_many_on_all) {
  EXPECT_FALSE(node_grid(blocks(1, 4)));
  EXPECT_FALSE(node_grid(blocks(4, 1)));
  EXPECT_FALSE(node_grid(std::vector<int>{0, 0, 1}));
  const auto grid = node_grid(std::vector<int>{7, 2, 7, 2, 2, 7});
  ASSERT_TRUE(grid);
  EXPECT_EQ(grid->ranks, (std::vector<std::vector<int>>{{0, 2, 5}, {1, 3, 4}}));
  EXPECT_EQ(grid->node_of(3), 1);
  EXPECT_EQ(grid->place_of(3), 1);
  EXPECT_EQ(shares_sent(3, hosted(3, 3), std::vector<int>{0, 0, 1}, 0), (SharesSent{2, 1}));
  EXPECT_EQ(shares_sent(3, hosted(3, 3), {}, 0), (SharesSent{2, 0}));
}

TEST(SumLevels, three_ranks_on_a_node_leave_two_partial_sums) {
  const auto parts = hosted(6, 6);
  const auto levels = sum_levels(6, parts, *node_grid(blocks(2, 3)));
  ASSERT_TRUE(levels);
  EXPECT_EQ(levels->nodes[0].sums, (std::vector<PartialSum>{{{0, 2}, {0, 2}}, {{2, 3}, {2, 3}}}));
  EXPECT_EQ(levels->nodes[1].sums, (std::vector<PartialSum>{{{3, 4}, {0, 1}}, {{4, 6}, {1, 3}}}));
  // In the node two shares for each of two ranks, between nodes both partial sums; one level would
  // send three of them to the other node.
  EXPECT_EQ(shares_sent(6, parts, blocks(2, 3), 0), (SharesSent{6, 2}));
}

TEST(SumLevels, are_not_used_if_no_two_neighbours_in_the_tree_share_a_node) {
  const auto parts = hosted(4, 4);
  EXPECT_FALSE(sum_levels(4, parts, *node_grid(std::vector<int>{0, 1, 0, 1})));
  EXPECT_EQ(shares_sent(4, parts, std::vector<int>{0, 1, 0, 1}, 0), (SharesSent{3, 2}));
}

// The order of the group is not that of the leaves, as in HSDP.
TEST(SumLevels, follow_the_leaves_and_not_the_order_of_the_group) {
  std::vector<std::vector<Range>> parts;
  for (const int64_t leaf : {0, 4, 1, 5, 2, 6, 3, 7}) parts.push_back({{leaf, leaf + 1}});
  const std::vector<int> nodes = {0, 1, 0, 1, 0, 1, 0, 1};
  const auto levels = sum_levels(8, parts, *node_grid(nodes));
  ASSERT_TRUE(levels);
  EXPECT_EQ(levels->nodes[1].sums, (std::vector<PartialSum>{{{4, 8}, {0, 4}}}));
  EXPECT_EQ(levels->far_program, (std::vector{TreeOp::push, TreeOp::push, TreeOp::add}));
  EXPECT_EQ(shares_sent(8, parts, nodes, 3), (SharesSent{7, 1}));
}

TEST(SumLevels, slots_are_at_most_twice_the_parts_of_all_ranks) {
  for (int nodes = 2; nodes <= 9; ++nodes) {
    for (int places = 2; places <= 9; ++places) {
      for (const int64_t workers : {1, 2, 3, 5, 8}) {
        const int ranks = nodes * places;
        const auto parts = hosted(ranks * workers, ranks);
        int64_t all = 0;
        for (const auto& own : parts) all += std::ssize(own);
        const auto levels = sum_levels(ranks * workers, parts, *node_grid(blocks(nodes, places)));
        ASSERT_TRUE(levels) << nodes << " x " << places << " x " << workers;
        EXPECT_LE(levels->slots, 2 * all);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::spec
