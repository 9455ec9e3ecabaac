// SPDX-License-Identifier: Apache-2.0
// A node is lost: its host ends, or no packet comes through to it. Its ranks go to spares of other
// nodes, if there are any.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/store/store_server.h"
#include "tests/launch/elastic_rig.h"
#include "tests/launch/node_spaces.h"

namespace trireme::tests {
namespace {

std::string list_of(int node) {
  return node == 0 ? "processes.json" : "processes-" + std::to_string(node) + ".json";
}

class LostNode : public ElasticTest {
 protected:
  using Nodes = std::vector<std::unique_ptr<Running>>;

  // Nodes with four ranks together, on this host or on those of `spaces`.
  Nodes launch_nodes(int steps, const Words& more, const NodeSpaces* spaces, int spare_nodes = 0,
                     int count = 4) {
    const int port = spaces ? 0 : comm::StoreServer({.host = "127.0.0.1"}).port();
    Nodes nodes;
    for (int node = 0; node < count + spare_nodes; ++node) {
      Words words = {"launch",
                     "-n",
                     std::to_string(4 / count),
                     "--nnodes",
                     std::to_string(count),
                     "--node-rank",
                     std::to_string(node)};
      words.push_back("--rdzv");
      words.push_back(spaces ? NodeSpaces::rendezvous() : "127.0.0.1:" + std::to_string(port));
      words = trireme_command(together(together(words, more), settings(steps, "run")));
      if (spaces) words = together(spaces->words_on(node), words);
      nodes.push_back(std::make_unique<Running>(scratch_.path(), words));
    }
    return nodes;
  }
  // Kills all processes of a node at once.
  void end_node(int node) {
    std::vector<pid_t> all = {launcher_part("guardian", list_of(node)),
                              launcher_part("supervisor", list_of(node))};
    for (int rank = 0; rank < 4; ++rank) {
      const pid_t process = process_of(rank, 0, list_of(node));
      if (process > 0) all.push_back(process);
    }
    for (const pid_t process : all) {
      ASSERT_GT(process, 0);
      ::kill(process, SIGKILL);
    }
  }
  void expect_good(const Nodes& nodes, const std::vector<int>& which) {
    for (const int node : which) {
      const Outcome outcome = nodes[static_cast<size_t>(node)]->wait();
      EXPECT_EQ(outcome.exit_code, 0) << "node " << node << "\n" << outcome.err;
    }
  }
};

TEST_F(LostNode, its_rank_goes_to_a_spare_of_another_node) {
  constexpr int steps = 100;
  const std::string expected = quiet_weights(steps);
  const Nodes nodes = launch_nodes(steps, {"--spares=1", "--elastic.detect_s=1"}, nullptr);
  ASSERT_TRUE(nodes[0]->wait_for([&] { return has_step(15) && process_of(2, 0, list_of(2)) > 0; }))
      << nodes[0]->err();
  end_node(2);
  expect_good(nodes, {0, 1, 3});
  EXPECT_NE(nodes[0]->err().find("node 2 is lost: spares of other nodes become its rank 2"),
            std::string::npos)
      << nodes[0]->err();
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
  expect_each_step_once(steps);
}

TEST_F(LostNode, the_only_rank_of_a_node_is_replaced_there) {
  constexpr int steps = 60;
  const std::string expected = quiet_weights(steps);
  const Nodes nodes = launch_nodes(steps, {}, nullptr);
  for (const auto& [node, step] : {std::pair{2, 10}, {0, 20}, {3, 30}}) {
    const pid_t process = [&, node = node, step = step] {
      pid_t found = 0;
      (void)nodes[0]->wait_for([&] {
        found = process_of(node, 0, list_of(node));
        return has_step(step) && found > 0;
      });
      return found;
    }();
    ASSERT_GT(process, 0) << nodes[0]->err();
    ASSERT_EQ(::kill(process, SIGKILL), 0);
  }
  expect_good(nodes, {0, 1, 2, 3});
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
  expect_each_step_once(steps);
}

TEST_F(LostNode, a_bad_file_of_domains_is_refused_before_the_start) {
  scratch_.write("domains.txt", "alone\n");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"missing.txt", "missing.txt"}, {"domains.txt", "domains.txt line 1"}};
  for (const auto& [file, expected] : cases) {
    const Outcome outcome = launch(4, {"--elastic.domains=" + file})->wait();
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << outcome.err;
    EXPECT_FALSE(scratch_.has("run")) << file;
  }
}

TEST_F(LostNode, its_ranks_go_to_a_node_of_spares) {
  if (std::getenv("TRIREME_FULL") == nullptr) GTEST_SKIP() << "TRIREME_FULL=1 runs it";
  constexpr int steps = 100;
  layout_ = {"--parallelism.data_parallel_shard_degree=4", "--checkpoint.interval=10"};
  const std::string expected = quiet_weights(steps);
  const Nodes nodes = launch_nodes(steps, {"--spare-nodes=1", "--elastic.detect_s=1"}, nullptr, 1);
  ASSERT_TRUE(nodes[0]->wait_for([&] { return has_step(15) && process_of(3, 0, list_of(3)) > 0; }))
      << nodes[0]->err();
  end_node(3);
  expect_good(nodes, {0, 1, 2, 4});
  EXPECT_NE(nodes[4]->err().find("rank 3 runs on node 4 from epoch 1 on"), std::string::npos)
      << nodes[4]->err();
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
  expect_each_step_once(steps);
}

// No checkpoint is saved before the last step.
const Words shards_without_checkpoints = {"--parallelism.data_parallel_shard_degree=4",
                                          "--parallelism.zero_stage=1", "--checkpoint.interval=0",
                                          "--elastic.peer_interval=1"};

TEST_F(LostNode, its_shards_come_from_the_memory_of_another_node) {
  constexpr int steps = 60;
  layout_ = shards_without_checkpoints;
  const std::string expected = quiet_weights(steps);
  const Nodes nodes = launch_nodes(steps, {"--spares=2", "--elastic.detect_s=1"}, nullptr, 0, 2);
  ASSERT_TRUE(nodes[0]->wait_for([&] { return has_step(15) && process_of(2, 0, list_of(1)) > 0; }))
      << nodes[0]->err();
  end_node(1);
  expect_good(nodes, {0});
  EXPECT_NE(nodes[0]->err().find("; ranks 2 and 3 from copies on other nodes"), std::string::npos)
      << nodes[0]->err();
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
  expect_each_step_once(steps);
}

// The second node keeps copies of two ranks, after the first loss has made three nodes of four.
TEST_F(LostNode, shards_survive_the_loss_of_two_nodes_one_after_the_other) {
  if (std::getenv("TRIREME_FULL") == nullptr) GTEST_SKIP() << "TRIREME_FULL=1 runs it";
  constexpr int steps = 300;
  layout_ = shards_without_checkpoints;
  const std::string expected = quiet_weights(steps);
  const Nodes nodes = launch_nodes(steps, {"--spares=1", "--elastic.detect_s=1"}, nullptr);
  ASSERT_TRUE(nodes[0]->wait_for([&] { return has_step(15) && process_of(2, 0, list_of(2)) > 0; }))
      << nodes[0]->err();
  end_node(2);
  ASSERT_TRUE(nodes[0]->wait_for([&] { return process_of(0, 1) > 0 && has_step(100); }))
      << nodes[0]->err();
  EXPECT_NE(nodes[0]->err().find("; rank 2 from copies on other nodes"), std::string::npos)
      << nodes[0]->err();
  end_node(3);
  expect_good(nodes, {0, 1});
  EXPECT_NE(nodes[0]->err().find("epoch 2 continues after step "), std::string::npos)
      << nodes[0]->err();
  EXPECT_NE(nodes[0]->err().find("; rank 3 from copies on other nodes"), std::string::npos)
      << nodes[0]->err();
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
  expect_each_step_once(steps);
}

TEST_F(LostNode, a_job_without_spares_is_to_be_requeued) {
  const Nodes nodes = launch_nodes(100000, {"--elastic.detect_s=1", "--restarts=2"}, nullptr);
  ASSERT_TRUE(nodes[0]->wait_for([&] { return has_step(15) && process_of(2, 0, list_of(2)) > 0; }))
      << nodes[0]->err();
  end_node(2);
  for (const int node : {0, 1, 3}) {
    const Outcome outcome = nodes[static_cast<size_t>(node)]->wait();
    EXPECT_EQ(outcome.exit_code, 75) << "node " << node << "\n" << outcome.err;
  }
  EXPECT_NE(nodes[0]->err().find("node 2 is lost, and there is no spare for its rank 2: the job is "
                                 "to be started again, with --resume auto"),
            std::string::npos)
      << nodes[0]->err();
}

TEST_F(LostNode, one_is_killed_and_one_cut_off_of_four_hosts) {
  if (std::getenv("TRIREME_FULL") == nullptr) GTEST_SKIP() << "TRIREME_FULL=1 runs it";
  if (!NodeSpaces::missing().empty()) GTEST_SKIP() << NodeSpaces::missing();
  NodeSpaces spaces(4);
  if (!spaces.problem().empty()) GTEST_SKIP() << "no network namespaces: " << spaces.problem();
  constexpr int steps = 400;
  const std::string expected = quiet_weights(steps);
  const Nodes nodes = launch_nodes(steps, {"--spares=1", "--elastic.detect_s=1"}, &spaces);
  ASSERT_TRUE(nodes[0]->wait_for([&] { return has_step(15) && process_of(2, 0, list_of(2)) > 0; }))
      << nodes[0]->err();
  end_node(2);
  ASSERT_TRUE(nodes[0]->wait_for([&] {
    return nodes[0]->err().find("epoch 1: ") != std::string::npos && has_step(100);
  })) << nodes[0]->err();
  spaces.cut(3, true);
  ASSERT_EQ(spaces.problem(), "");
  expect_good(nodes, {0, 1});
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
  expect_each_step_once(steps);
  const Outcome cut = nodes[3]->wait();
  EXPECT_EQ(cut.exit_code, 75) << cut.err;
}

}  // namespace
}  // namespace trireme::tests
