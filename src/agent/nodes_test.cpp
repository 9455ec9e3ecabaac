// SPDX-License-Identifier: Apache-2.0
#include "agent/nodes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/exit_codes.h"
#include "comm/store/store_server.h"

namespace trireme::agent {
namespace {

TEST(Nodes, the_outcome_that_forbids_most_is_that_of_the_job) {
  using Nodes = std::vector<NodeOutcome>;
  const NodeOutcome fine{exit_done, true}, failed{exit_failed, true};
  EXPECT_EQ(outcome_of_job(Nodes{fine, fine}), fine);
  EXPECT_EQ(outcome_of_job(Nodes{failed, fine}), failed);
  EXPECT_EQ(outcome_of_job(Nodes{failed, {exit_bad_call, false}}),
            (NodeOutcome{exit_bad_call, false}));
  EXPECT_EQ(outcome_of_job(Nodes{{exit_taken_over, true}, {exit_bad_call, true}}),
            (NodeOutcome{exit_taken_over, true}));
  EXPECT_EQ(outcome_of_job(Nodes{{exit_stopped, false}, fine}), (NodeOutcome{exit_stopped, false}));
  EXPECT_EQ(outcome_of_job(Nodes{failed, {exit_failed, false}}), (NodeOutcome{exit_failed, false}));
}

TEST(Nodes, all_nodes_have_one_outcome_also_if_a_launcher_has_died) {
  const comm::StoreServer server({.host = "127.0.0.1", .grace_s = 0});
  const auto open = [&] {
    return comm::open_store({.host = "127.0.0.1", .port = server.port()}, 60);
  };
  const std::vector<int> nodes = {0, 1, 2, 3};
  {
    const auto dead = open();
    comm::membership_of(*dead)->join(node_name(3));
  }
  std::vector<std::future<Decision>> decisions;
  for (int node = 0; node < 3; ++node) {
    decisions.push_back(std::async(std::launch::async, [&, node] {
      const auto store = open();
      comm::membership_of(*store)->join(node_name(node));
      Agreement agreement(*store, node, nodes, nodes);
      agreement.publish({node == 1 ? exit_bad_call : exit_failed, node != 1});
      while (!agreement.decision()) {
        if (node == 0 && agreement.has_all_outcomes()) agreement.propose({.max_restarts = 5});
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      agreement.confirm();
      return *agreement.decision();
    }));
  }
  for (auto& decision : decisions) {
    EXPECT_EQ(decision.get(), (Decision{.exit_code = exit_bad_call}));
  }
}

TEST(Nodes, the_first_decision_stands) {
  const comm::StoreServer server({.host = "127.0.0.1"});
  const auto store = comm::open_store({.host = "127.0.0.1", .port = server.port()}, 60);
  Agreement agreement(*store, 0, {0}, {0});
  EXPECT_EQ(agreement.decision(), std::nullopt);
  agreement.publish({exit_failed, true});
  EXPECT_TRUE(agreement.has_all_outcomes());
  agreement.propose({.max_restarts = 1});
  const auto first = agreement.decision();
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->restarts);
  agreement.propose_end(exit_failed);
  EXPECT_EQ(agreement.decision(), first);
}

}  // namespace
}  // namespace trireme::agent
