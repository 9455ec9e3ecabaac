// SPDX-License-Identifier: Apache-2.0
// Processes outlive their groups: over Gloo they form groups and train again and again, and are
// aborted in the middle of a step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/gloo.h"
#include "tests/launch/lives.h"

namespace trireme::tests {
namespace {

// Five quiet lives of two processes and 4 more; 200 more with TRIREME_FULL=1.
TEST(LivesOfProcesses, nothing_is_left_behind_and_no_wrong_state_is_sealed) {
  if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  const int lives = std::getenv("TRIREME_FULL") != nullptr ? 200 : 4;
  const std::string lines = lives_of(2, fmt::format("--lives={} --seed=7", lives), 600);
  fmt::print("{}{:.0f} % of aborted lives sealed\n", lines, 100 * expect_lives(lines, 2, lives));
}

}  // namespace
}  // namespace trireme::tests
