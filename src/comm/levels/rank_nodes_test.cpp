// SPDX-License-Identifier: Apache-2.0
// Ranks inside one process, each with its own handle on the store, agree on who shares a node.
#include "comm/levels/rank_nodes.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "comm/store/store_server.h"

namespace trireme::comm {
namespace {

// Returns what each rank finds if launchers give the ranks these numbers of nodes and
// `local_world`.
std::vector<std::vector<int>> nodes_found(const std::vector<int>& nodes, int local_world) {
  const StoreServer server({.host = "127.0.0.1", .grace_s = 0});
  const auto ranks = static_cast<int>(nodes.size());
  std::vector<std::unique_ptr<ProcessWorld>> worlds;
  for (int rank = 0; rank < ranks; ++rank) {
    worlds.push_back(std::make_unique<ProcessWorld>(
        RankInfo{.rank = rank,
                 .world = ranks,
                 .local_rank = rank % local_world,
                 .local_world = local_world,
                 .node = nodes[static_cast<size_t>(rank)],
                 .store = "127.0.0.1:" + std::to_string(server.port())}));
  }
  std::vector<std::vector<int>> found(nodes.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    threads.emplace_back([&, rank] { found[rank] = nodes_of_ranks(*worlds[rank], 60); });
  }
  for (std::thread& thread : threads) thread.join();
  return found;
}

TEST(RankNodes, are_the_same_on_all_ranks_in_the_order_of_the_world) {
  const std::vector<int> expected = {0, 1, 0, 1};
  for (const auto& found : nodes_found({7, 3, 7, 3}, 2)) EXPECT_EQ(found, expected);
}

TEST(RankNodes, are_none_if_all_ranks_are_on_one) {
  for (const auto& found : nodes_found({0, 0}, 2)) EXPECT_TRUE(found.empty());
  // If a launcher does not set the number of local ranks, the ranks compare their nodes.
  for (const auto& found : nodes_found({0, 0, 0}, 1)) EXPECT_TRUE(found.empty());
}

}  // namespace
}  // namespace trireme::comm
