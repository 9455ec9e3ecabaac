// SPDX-License-Identifier: Apache-2.0
#include "agent/processes/processes.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/system/descriptor_limit.h"

namespace trireme::agent {
namespace {

TEST(RankProcessesTest, a_line_without_end_comes_in_parts) {
  std::vector<std::string> lines;
  Keeper nothing;
  RankProcesses processes(
      [&](int /*rank*/, bool /*is_error*/, std::string_view line) { lines.emplace_back(line); },
      nothing);
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

TEST(DescriptorsTest, what_the_limit_does_not_allow_is_refused_with_the_numbers) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit small{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
  std::string refusal;
  try {
    Keeper nothing;
    RankProcesses processes([](int, bool, std::string_view) {}, nothing);
    processes.start({.world = 1000, .local_world = 500, .store = "127.0.0.1:1234"}, {"/bin/true"});
  } catch (const base::ConfigError& error) {
    refusal = error.what();
  }
  base::expect_descriptors(1, "one");
  base::raise_descriptor_limit();
  rlimit raised{};
  ::getrlimit(RLIMIT_NOFILE, &raised);
  ::setrlimit(RLIMIT_NOFILE, &before);
  // 6 x 500 + 3 x 1000 + 8, and those that are open.
  EXPECT_EQ(refusal.rfind("launching 500 ranks of 1000 needs 60", 0), 0U) << refusal;
  EXPECT_NE(refusal.find("this process may have 64"), std::string::npos) << refusal;
  EXPECT_EQ(raised.rlim_cur, std::min<rlim_t>(before.rlim_max, 1 << 20));
}

}  // namespace
}  // namespace trireme::agent
