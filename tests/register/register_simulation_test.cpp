// SPDX-License-Identifier: Apache-2.0
// Histories of a run on a virtual clock, one per seed: processes and the register's host end, lose
// power and pause, messages are lost, late and doubled, links break in one direction, disks fill,
// clocks jump. Planted bugs show that the checks find what they are made for. 10,000 histories;
// 100,000 with TRIREME_FULL=1.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "sim_world.h"

namespace trireme::comm {
namespace {

// Journals with an end that is cut off are what is simulated.
class RegisterSimulation : public testing::Test {
 protected:
  void SetUp() override { base::set_log_level(base::LogLevel::error); }
  void TearDown() override { base::set_log_level(base::LogLevel::info); }
};

TEST_F(RegisterSimulation, every_history_keeps_the_invariants_and_ends_with_a_group) {
  const unsigned histories = std::getenv("TRIREME_FULL") != nullptr ? 100000 : 10000;
  int64_t epochs = 0;
  SimOracle::Counts sums;
  for (unsigned seed = 0; seed < histories; ++seed) {
    SimWorld world(seed, SimBug::none);
    EXPECT_EQ(world.run(), "") << "seed " << seed;
    if (HasFailure()) return;
    const SimOracle::Counts& counts = world.oracle().counts();
    epochs += world.oracle().epochs();
    sums.commits += counts.commits;
    sums.conflicts += counts.conflicts;
    sums.isolated += counts.isolated;
    sums.from_memory += counts.from_memory;
    sums.left_open_and_done += counts.left_open_and_done;
  }
  fmt::print(
      "{} histories, {} epochs, {} of them from memory, {} commits, {} conflicts, {} processes "
      "isolated, {} swaps found done after a failure\n",
      histories, epochs, sums.from_memory, sums.commits, sums.conflicts, sums.isolated,
      sums.left_open_and_done);
  EXPECT_GT(epochs, 2 * int64_t{histories});
  EXPECT_GT(sums.commits, 2 * int64_t{histories});
  for (const int64_t rare :
       {sums.from_memory, sums.conflicts, sums.isolated, sums.left_open_and_done}) {
    EXPECT_GT(rare, histories / 100);
  }
}

TEST_F(RegisterSimulation, planted_bugs_are_found) {
  const std::vector<std::pair<SimBug, const char*>> all = {
      {SimBug::majority_of_live, "majority of live processes"},
      {SimBug::epoch_not_synced, "epoch not synced"},
      {SimBug::reply_before_sync, "reply before sync"},
      {SimBug::request_id_ignored, "request id ignored"},
      {SimBug::epoch_not_compared, "receiver skips the epoch check"},
      {SimBug::commit_without_swap, "commit without swap"},
      {SimBug::any_holder, "resume point of any holder"},
      {SimBug::settable_clock, "settable clock for silence"},
      {SimBug::spare_twice, "spare counted twice"},
      {SimBug::short_window, "window shorter than a restore"},
      {SimBug::process_number, "incarnation is a process number"}};
  for (const auto& [bug, name] : all) {
    unsigned seed = 0;
    std::string problem;
    for (; seed < 10000 && problem.empty(); ++seed) problem = SimWorld(seed, bug).run();
    fmt::print("{:<32} after {:>4} histories: {}\n", name, seed, problem);
    EXPECT_NE(problem, "") << name;
  }
}

}  // namespace
}  // namespace trireme::comm
