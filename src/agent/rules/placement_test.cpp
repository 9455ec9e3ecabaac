// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/placement.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace trireme::agent {
namespace {

using Indices = std::vector<int>;

TEST(Placement, starts_with_as_many_ranks_on_every_node) {
  const Placement placement = first_placement(2, 3);
  EXPECT_EQ(placement.node_of, (Indices{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(placement.ranks_on(1), (Indices{2, 3}));
  EXPECT_EQ(placement.ranks_on(3), Indices());
  EXPECT_EQ(placement.nodes_left(4), (Indices{0, 1, 2, 3}));
}

TEST(Placement, moves_the_ranks_of_a_node_together_where_that_is_possible) {
  const Move move = move_ranks(first_placement(2, 3), std::array{1}, std::array{1, 9, 3, 2});
  ASSERT_TRUE(move.placement) << move.problem;
  EXPECT_EQ(move.placement->node_of, (Indices{0, 0, 3, 3, 2, 2}));  // the fewest that suffice
  EXPECT_EQ(move.placement->version, 1);
  EXPECT_EQ(move.placement->lost, Indices{1});
  EXPECT_EQ(move.placement->nodes_left(4), (Indices{0, 2, 3}));
}

TEST(Placement, shares_them_out_otherwise) {
  const Move move = move_ranks(first_placement(4, 3), std::array{1}, std::array{1, 4, 3});
  ASSERT_TRUE(move.placement) << move.problem;
  EXPECT_EQ(move.placement->node_of, (Indices{0, 0, 0, 0, 2, 2, 2, 0, 2, 2, 2, 2}));
}

TEST(Placement, counts_a_spare_once) {
  const Move move = move_ranks(first_placement(1, 4), std::array{2, 1}, std::array{1, 1, 1, 1});
  ASSERT_TRUE(move.placement) << move.problem;
  EXPECT_EQ(move.placement->node_of, (Indices{0, 0, 3, 3}));
  EXPECT_EQ(move.placement->lost, (Indices{1, 2}));
}

TEST(Placement, says_for_which_ranks_there_is_no_spare) {
  const Move move = move_ranks(first_placement(2, 2), std::array{1}, std::array{1, 2});
  EXPECT_FALSE(move.placement);
  EXPECT_EQ(move.problem, "node 1 is lost, and there is no spare for its rank 3");
}

TEST(Placement, ranks_move_on_when_their_second_node_is_lost_too) {
  const Move first = move_ranks(first_placement(1, 3), std::array{2}, std::array{1, 0, 1});
  ASSERT_TRUE(first.placement) << first.problem;
  EXPECT_EQ(first.placement->node_of, (Indices{0, 1, 0}));
  const Move second = move_ranks(*first.placement, std::array{1}, std::array{0, 0, 5, 1});
  ASSERT_TRUE(second.placement) << second.problem;
  EXPECT_EQ(second.placement->node_of, (Indices{0, 3, 0}));  // node 2 has spares, but is lost
  EXPECT_EQ(second.placement->lost, (Indices{1, 2}));
  EXPECT_EQ(second.placement->version, 2);
}

TEST(Placement, a_lost_node_without_ranks_moves_none) {
  const Move move = move_ranks(first_placement(1, 2), std::array{2}, std::array{0, 0, 1});
  ASSERT_TRUE(move.placement) << move.problem;
  EXPECT_EQ(move.placement->node_of, (Indices{0, 1}));
}

TEST(Placement, survives_its_text) {
  const Move move = move_ranks(first_placement(1, 3), std::array{2}, std::array{1, 0, 0});
  ASSERT_TRUE(move.placement) << move.problem;
  EXPECT_EQ(placement_from(to_text(*move.placement)), move.placement);
  EXPECT_FALSE(placement_from("[1,2]"));
  EXPECT_FALSE(placement_from("[1,[0],\"x\"]"));
  EXPECT_FALSE(placement_from("{"));
}

}  // namespace
}  // namespace trireme::agent
