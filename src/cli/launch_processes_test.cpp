// SPDX-License-Identifier: Apache-2.0
#include "cli/launch_processes.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace trireme::cli {
namespace {

TEST(RankProcessesTest, a_line_without_end_comes_in_parts) {
  std::vector<std::string> lines;
  RankProcesses processes(
      [&](int /*rank*/, bool /*is_error*/, std::string_view line) { lines.emplace_back(line); });
  processes.start({}, {"/bin/sh", "-c", "echo first; head -c 5000000 /dev/zero; echo; echo last"});
  while (processes.is_running()) processes.wait(1);
  processes.drain();
  ASSERT_GE(lines.size(), 3U);
  EXPECT_EQ(lines.front(), "first");
  EXPECT_EQ(lines.back(), "last");
  size_t zeros = 0;
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    EXPECT_LT(lines[i].size(), RankProcesses::max_line_bytes + 65536);  // of one read
    EXPECT_EQ(lines[i].find_first_not_of('\0'), std::string::npos);
    zeros += lines[i].size();
  }
  EXPECT_EQ(zeros, 5'000'000U);
}

}  // namespace
}  // namespace trireme::cli
