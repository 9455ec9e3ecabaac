// SPDX-License-Identifier: Apache-2.0
// The launcher's own processes are lost, while its ranks go on: a guardian starts the supervisor
// again, and a supervisor the guardian.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text/json.h"
#include "comm/store/store_server.h"
#include "tests/launch/elastic_rig.h"

namespace trireme::tests {
namespace {

class Guardian : public ElasticTest {
 protected:
  // Kills a part of the launcher once the run has finished the step, and waits for the next one.
  void replace_part(Running& running, const std::string& name, int step) {
    ASSERT_TRUE(running.wait_for([&] { return has_step(step) && launcher_part(name) > 0; }))
        << running.err();
    const pid_t before = launcher_part(name);
    ASSERT_EQ(::kill(before, SIGKILL), 0);
    ASSERT_TRUE(running.wait_for([&] { return launcher_part(name) != before; })) << running.err();
  }
  // No rank was lost with it: the first epoch is the last.
  void expect_one_epoch(const Outcome& outcome) const {
    EXPECT_EQ(outcome.err.find("epoch 1: "), std::string::npos) << outcome.err;
  }
};

TEST_F(Guardian, the_end_of_a_supervisor_costs_no_step) {
  constexpr int steps = 60;
  const std::string expected = quiet_weights(steps);
  const auto running = launch(steps, {"--json"});
  replace_part(*running, "supervisor", 10);
  replace_part(*running, "supervisor", 30);
  const Outcome outcome = running->wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
  expect_each_step_once(steps);
  expect_one_epoch(outcome);
  const base::Json result = base::Json::parse(outcome.out);
  EXPECT_TRUE(result.at("ok").get<bool>()) << outcome.out;
  EXPECT_EQ(result.at("recoveries"), 0);
}

// The guardian is the process that the user has started.
TEST_F(Guardian, its_own_end_costs_no_step) {
  constexpr int steps = 60;
  const std::string expected = quiet_weights(steps);
  const auto running = launch(steps, {"--json"});
  replace_part(*running, "guardian", 10);
  replace_part(*running, "supervisor", 20);
  replace_part(*running, "guardian", 35);
  const Outcome outcome = running->wait();
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL) << outcome.err;
  ASSERT_TRUE(wait_until([&] { return scratch_.has("run/" + weights_file); })) << outcome.err;
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
  expect_each_step_once(steps);
  expect_one_epoch(outcome);
  const base::Json result = base::Json::parse(outcome.out);
  EXPECT_TRUE(result.at("ok").get<bool>()) << outcome.out;
}

TEST_F(Guardian,
       a_supervisor_that_dies_while_the_next_epoch_forms_is_followed_by_one_that_goes_on) {
  constexpr int steps = 60;
  const std::string expected = quiet_weights(steps);
  const auto running = launch(steps, {"--json"});
  disturb(*running, SIGKILL, 2, 15, 0);
  ASSERT_TRUE(running->wait_for([&] {
    return running->err().find("another process takes its place") != std::string::npos;
  })) << running->err();
  ASSERT_EQ(::kill(launcher_part("supervisor"), SIGKILL), 0);
  const Outcome outcome = running->wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
  expect_each_step_once(steps);
}

TEST_F(Guardian, without_both_the_ranks_save_and_end) {
  const auto running = launch(100000, {});
  ASSERT_TRUE(running->wait_for([&] { return has_step(10) && launcher_part("guardian") > 0; }))
      << running->err();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(process_of(rank, 0));
  const pid_t supervisor = launcher_part("supervisor");
  ASSERT_EQ(::kill(launcher_part("guardian"), SIGKILL), 0);
  ASSERT_EQ(::kill(supervisor, SIGKILL), 0);
  (void)running->wait();
  const auto have_ended = [&] {
    for (const pid_t rank : ranks) {
      if (::kill(rank, 0) == 0) return false;
    }
    return true;
  };
  ASSERT_TRUE(wait_until(have_ended));
  const std::string list = trireme(scratch_, {"ckpt", "list", "run"}).out;
  EXPECT_NE(list.find("step"), std::string::npos) << list;
}

TEST_F(Guardian, a_request_to_stop_reaches_a_supervisor_that_was_started_again) {
  if (std::getenv("TRIREME_FULL") == nullptr) GTEST_SKIP() << "TRIREME_FULL=1 runs it";
  const auto running = launch(100000, {});
  replace_part(*running, "supervisor", 10);
  running->signal(SIGTERM);
  const Outcome outcome = running->wait();
  EXPECT_EQ(outcome.exit_code, 75) << outcome.err;
  EXPECT_NE(outcome.err.find("is saved; --resume auto continues"), std::string::npos)
      << outcome.err;
}

TEST_F(Guardian, nodes_go_on_when_the_supervisor_of_one_of_them_is_started_again) {
  if (std::getenv("TRIREME_FULL") == nullptr) GTEST_SKIP() << "TRIREME_FULL=1 runs it";
  constexpr int steps = 60;
  const std::string expected = quiet_weights(steps);
  const int port = comm::StoreServer({.host = "127.0.0.1"}).port();
  std::vector<std::unique_ptr<Running>> nodes;
  for (int node = 0; node < 2; ++node) {
    const Words words = {"launch",
                         "-n",
                         "2",
                         "--nnodes",
                         "2",
                         "--node-rank",
                         std::to_string(node),
                         "--rdzv",
                         "127.0.0.1:" + std::to_string(port)};
    nodes.push_back(std::make_unique<Running>(
        scratch_.path(), trireme_command(together(words, settings(steps, "run")))));
  }
  for (const auto& [list, step] : {std::pair<std::string, int>{"processes-1.json", 10},
                                   std::pair<std::string, int>{"processes.json", 30}}) {
    ASSERT_TRUE(nodes[0]->wait_for([&, &list = list, &step = step] {
      return has_step(step) && launcher_part("supervisor", list) > 0;
    })) << nodes[0]->err();
    ASSERT_EQ(::kill(launcher_part("supervisor", list), SIGKILL), 0);
  }
  for (const auto& node : nodes) {
    const Outcome outcome = node->wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    expect_one_epoch(outcome);
  }
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
  expect_each_step_once(steps);
}

}  // namespace
}  // namespace trireme::tests
