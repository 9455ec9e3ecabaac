// SPDX-License-Identifier: Apache-2.0
// docs/stopping.md shows the tables of this folder.
#include "agent/exit_codes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "agent/rules/policy.h"

namespace trireme::agent {
namespace {

std::string stopping_page() {
  const auto root = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  std::ifstream in(root / "docs" / "stopping.md", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(ExitCodes, the_page_has_the_table) {
  EXPECT_NE(stopping_page().find("\n\n" + exit_code_table() + "\n"), std::string::npos)
      << exit_code_table();
}

TEST(ExitCodes, the_page_has_the_rules_of_the_launcher) {
  EXPECT_NE(stopping_page().find("\n\n" + policy_table() + "\n"), std::string::npos)
      << policy_table();
}

TEST(ExitCodes, only_a_failure_may_be_started_again_by_the_launcher) {
  for (const ExitCode& row : exit_codes()) {
    EXPECT_EQ(forbids_restart(row.code), row.code != exit_failed) << row.name;
  }
}

}  // namespace
}  // namespace trireme::agent
