// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/peer/partners.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace trireme::train {
namespace {

std::vector<std::string> names(const std::vector<int>& domains) {
  std::vector<std::string> names;
  for (const int domain : domains) names.push_back(fmt::format("rack{}", domain));
  return names;
}
// `count` ranks on each node.
std::vector<int> ranks_on(size_t nodes, int count) {
  std::vector<int> node_of;
  for (size_t node = 0; node < nodes; ++node) {
    node_of.insert(node_of.end(), static_cast<size_t>(count), static_cast<int>(node));
  }
  return node_of;
}

TEST(PartnersTest, two_nodes_keep_the_copies_of_each_other) {
  const Partners two = partners_of(ranks_on(2, 2), names({0, 1}));
  EXPECT_EQ(two.keepers, (std::vector<int>{2, 3, 0, 1}));
  EXPECT_TRUE(two.same_domain.empty());
  EXPECT_EQ(two.ranks_kept_by(2), std::vector<int>{0});
}

TEST(PartnersTest, a_node_with_fewer_ranks_keeps_several_copies_in_one) {
  const Partners partners = partners_of(std::vector<int>{0, 1, 0, 0}, names({0, 1}));
  EXPECT_EQ(partners.keepers, (std::vector<int>{1, 0, 1, 1}));
  EXPECT_EQ(partners.ranks_kept_by(1), (std::vector<int>{0, 2, 3}));
}

TEST(PartnersTest, one_node_has_none) {
  EXPECT_EQ(partners_of(ranks_on(1, 3), names({0})).keepers, (std::vector<int>{-1, -1, -1}));
  EXPECT_TRUE(partners_of({}, {}).keepers.empty());
}

TEST(PartnersTest, pairs_are_in_different_domains) {
  EXPECT_EQ(partners_of(ranks_on(4, 1), names({0, 0, 1, 1})).keepers,
            (std::vector<int>{2, 3, 0, 1}));
  EXPECT_EQ(partners_of(ranks_on(4, 1), names({0, 0, 0, 1})).same_domain.size(), 2U);
}

TEST(PartnersTest, every_node_has_one_keeper_in_another_domain_wherever_possible) {
  for (uint32_t seed = 1; seed <= 3000; ++seed) {
    std::mt19937 random(seed);
    const size_t nodes = 2 + random() % 12;
    const size_t most = 1 + random() % nodes;
    std::vector<int> domains;
    std::map<int, size_t> sizes;
    for (size_t node = 0; node < nodes; ++node) {
      domains.push_back(static_cast<int>(random() % most));
      ++sizes[domains.back()];
    }
    std::vector<int> node_of;
    for (size_t node = 0; node < nodes; ++node) {
      node_of.insert(node_of.end(), 1 + random() % 3, static_cast<int>(node));
    }
    std::ranges::shuffle(node_of, random);
    const Partners partners = partners_of(node_of, names(domains));
    EXPECT_EQ(partners.keepers, partners_of(node_of, names(domains)).keepers);
    ASSERT_EQ(partners.keepers.size(), node_of.size());
    std::map<int, std::set<int>> kept_by, keeps;  // nodes
    for (size_t rank = 0; rank < node_of.size(); ++rank) {
      const int keeper = partners.keepers[rank];
      ASSERT_TRUE(keeper >= 0 && keeper < std::ssize(node_of)) << "seed " << seed;
      const int from = node_of[rank], to = node_of[static_cast<size_t>(keeper)];
      EXPECT_NE(from, to) << "seed " << seed;
      kept_by[from].insert(to);
      keeps[to].insert(from);
    }
    size_t crossing = 0, pairs = 0;
    for (size_t node = 0; node < nodes; ++node) {
      const int of = static_cast<int>(node);
      ASSERT_EQ(kept_by[of].size(), 1U) << "seed " << seed;
      ASSERT_EQ(keeps[of].size(), 1U) << "seed " << seed;
      const int keeper = *kept_by[of].begin();
      if (domains[node] != domains[static_cast<size_t>(keeper)]) ++crossing;
      if (*kept_by[keeper].begin() == of) ++pairs;
    }
    EXPECT_EQ(pairs, nodes % 2 == 0 ? nodes : nodes - 3) << "seed " << seed;
    EXPECT_EQ(partners.same_domain.size(), nodes - crossing) << "seed " << seed;
    size_t largest = 0;
    for (const auto& [domain, size] : sizes) largest = std::max(largest, size);
    EXPECT_EQ(crossing, std::min(nodes, 2 * (nodes - largest))) << "seed " << seed;
    // Ranks of one node are spread evenly over their keepers.
    for (int keeper = 0; keeper < std::ssize(node_of); ++keeper) {
      const auto on = [&](int node) { return std::ranges::count(node_of, node); };
      const int node = node_of[static_cast<size_t>(keeper)];
      const auto of = on(*keeps[node].begin());
      const auto kept = std::ssize(partners.ranks_kept_by(keeper));
      EXPECT_LE(kept, (of + on(node) - 1) / on(node)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace trireme::train
