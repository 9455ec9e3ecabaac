// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/sum_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/dtype.h"
#include "base/rng.h"

namespace trireme::spec {
namespace {

using base::Bf16;

float as_f32(float value) { return value; }
float as_bf16(float value) { return static_cast<float>(Bf16(value)); }
using Round = float (*)(float);

// Runs a program on values of its parts; every sum is rounded. Also returns the depth of the stack.
float run(const std::vector<TreeOp>& program, const std::vector<float>& parts, Round round,
          size_t* depth = nullptr) {
  std::vector<float> stack;
  size_t next = 0, deepest = 0;
  for (const TreeOp op : program) {
    if (op == TreeOp::push) {
      stack.push_back(parts.at(next++));
      deepest = std::max(deepest, stack.size());
      continue;
    }
    const float b = stack.back();
    stack.pop_back();
    stack.back() = round(stack.back() + b);
  }
  EXPECT_EQ(stack.size(), 1U);
  EXPECT_EQ(next, parts.size());
  if (depth != nullptr) *depth = deepest;
  return stack.back();
}

// The definition, word by word.
float tree_sum(const std::vector<float>& leaves, int64_t begin, int64_t end, Round round) {
  if (end - begin == 1) return leaves.at(static_cast<size_t>(begin));
  int64_t p = 1;
  while (2 * p < end - begin) p *= 2;
  return round(tree_sum(leaves, begin, begin + p, round) + tree_sum(leaves, begin + p, end, round));
}

std::vector<float> random_leaves(int64_t count, uint64_t seed, Round round) {
  std::vector<float> values;
  const base::RngKey key = base::rng_key(seed, "leaves");
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<uint64_t>(i);
    const int exponent = static_cast<int>(base::rng_below(key, 1000 + index, 12)) - 6;
    values.push_back(round(std::ldexp(base::rng_normal(key, index, 1), exponent)));
  }
  return values;
}

TEST(SumTree, every_split_of_the_leaves_over_ranks_gives_the_same_bits) {
  int64_t checked = 0;
  for (const Round round : {as_f32, as_bf16}) {
    for (int64_t leaves = 1; leaves <= 48; ++leaves) {
      const auto values = random_leaves(leaves, static_cast<uint64_t>(leaves), round);
      const float expected = tree_sum(values, 0, leaves, round);
      for (int ranks = 1; ranks <= leaves; ++ranks) {
        if (leaves % ranks != 0) continue;
        std::vector<Range> parts;
        std::vector<float> sums;
        for (int rank = 0; rank < ranks; ++rank) {
          for (const Range node : tree_cover(leaves, leaves_of_rank(leaves, ranks, rank))) {
            parts.push_back(node);
            sums.push_back(tree_sum(values, node.begin, node.end, round));
          }
        }
        size_t depth = 0;
        const float found = run(tree_program(leaves, parts), sums, round, &depth);
        EXPECT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(expected))
            << leaves << " leaves on " << ranks;
        EXPECT_LE(depth, static_cast<size_t>(std::bit_width(static_cast<uint64_t>(leaves)) + 1));
        ++checked;
      }
    }
  }
  EXPECT_EQ(checked, 2 * 198);  // divisors of 1 to 48
}

TEST(SumTree, a_cover_is_exact_ordered_and_small) {
  for (int64_t leaves = 1; leaves <= 48; ++leaves) {
    for (int64_t begin = 0; begin < leaves; ++begin) {
      for (int64_t end = begin + 1; end <= leaves; ++end) {
        const auto nodes = tree_cover(leaves, {begin, end});
        int64_t at = begin;
        for (const Range node : nodes) {
          EXPECT_EQ(node.begin, at);
          at = node.end;
        }
        EXPECT_EQ(at, end);
        const auto log2 = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(leaves - 1)));
        EXPECT_LE(nodes.size(), std::max<size_t>(1, 2 * log2));
      }
    }
  }
}

TEST(SumTree, aligned_powers_of_two_are_one_node) {
  EXPECT_EQ(tree_cover(24, {8, 16}), (std::vector<Range>{{8, 16}}));
  EXPECT_EQ(tree_cover(24, {16, 24}), (std::vector<Range>{{16, 24}}));
  EXPECT_EQ(tree_cover(6, {4, 6}), (std::vector<Range>{{4, 6}}));
  EXPECT_EQ(tree_cover(6, {3, 6}), (std::vector<Range>{{3, 4}, {4, 6}}));
  EXPECT_EQ(tree_cover(7, {0, 7}), (std::vector<Range>{{0, 7}}));
}

TEST(SumTreeDeathTest, parts_that_are_not_the_whole_are_a_bug) {
  EXPECT_DEATH((void)tree_program(4, std::vector<Range>{{0, 2}}), "not a node at leaf 2");
  EXPECT_DEATH((void)tree_program(4, std::vector<Range>{{0, 3}, {3, 4}}), "not a node");
  EXPECT_DEATH((void)tree_program(2, std::vector<Range>{{0, 2}, {0, 2}}), "1 of 2 parts");
  EXPECT_DEATH((void)leaves_of_rank(7, 2, 0), "7 leaves on rank 0 of 2");
}

}  // namespace
}  // namespace trireme::spec
