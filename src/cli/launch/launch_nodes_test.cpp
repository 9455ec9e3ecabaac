// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/launch_nodes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "cli/shell/exit_codes.h"
#include "comm/store/store_server.h"

namespace trireme::cli {
namespace {

TEST(LaunchNodesTest, the_outcome_that_forbids_most_is_that_of_the_job) {
  using Nodes = std::vector<NodeOutcome>;
  const NodeOutcome fine{exit_done, true}, failed{exit_failed, true};
  EXPECT_EQ(outcome_of_job(Nodes{fine, fine}), fine);
  EXPECT_EQ(outcome_of_job(Nodes{failed, fine}), failed);
  EXPECT_EQ(outcome_of_job(Nodes{failed, {exit_bad_call, false}}),
            (NodeOutcome{exit_bad_call, false}));
  EXPECT_EQ(outcome_of_job(Nodes{{exit_do_not_requeue, true}, {exit_bad_call, true}}),
            (NodeOutcome{exit_do_not_requeue, true}));
  EXPECT_EQ(outcome_of_job(Nodes{{exit_stopped, false}, fine}), (NodeOutcome{exit_stopped, false}));
  EXPECT_EQ(outcome_of_job(Nodes{failed, {exit_failed, false}}), (NodeOutcome{exit_failed, false}));
}

TEST(LaunchNodesTest, all_nodes_have_one_outcome_also_if_a_launcher_has_died) {
  const comm::StoreServer server({.host = "127.0.0.1", .grace_s = 0});
  const auto open = [&] {
    return comm::open_store({.host = "127.0.0.1", .port = server.port()}, 60);
  };
  constexpr int nodes = 4;
  {
    const auto dead = open();
    comm::membership_of(*dead)->join(node_name(3));
  }
  std::vector<std::future<NodeOutcome>> outcomes;
  for (int node = 0; node < nodes - 1; ++node) {
    outcomes.push_back(std::async(std::launch::async, [&, node] {
      const auto store = open();
      comm::membership_of(*store)->join(node_name(node));
      const NodeOutcome own{node == 1 ? exit_bad_call : exit_failed, node != 1};
      return agree_on_outcome(*store, {.node = node, .nodes = nodes, .max_wait_s = 60}, own);
    }));
  }
  for (auto& outcome : outcomes) {
    EXPECT_EQ(outcome.get(), (NodeOutcome{exit_bad_call, false}));
  }
}

}  // namespace
}  // namespace trireme::cli
