// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/peer/failure_domains.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::train {
namespace {

std::string problem_of(const std::string& text) {
  try {
    (void)FailureDomains::from_text(text, "domains.txt");
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(FailureDomainsTest, every_line_has_a_host_and_its_domain) {
  const FailureDomains domains = FailureDomains::from_text(
      "# racks\nnode1 rack1\n\n  node2\track1 # the same\nnode3 rack2", "domains.txt");
  EXPECT_EQ(domains.domain_of("node1"), "rack1");
  EXPECT_EQ(domains.domain_of("node2"), "rack1");
  EXPECT_EQ(domains.domain_of("node3.cluster.example"), "rack2");
  EXPECT_FALSE(domains.has("node4"));
  EXPECT_EQ(domains.domain_of("node4"), "node4");
  EXPECT_TRUE(FailureDomains::read("").is_empty());
}

TEST(FailureDomainsTest, problems_name_file_and_line) {
  EXPECT_EQ(problem_of("node1 rack1\nnode1 rack1\n"), "");
  EXPECT_NE(problem_of("a b\n\nnode1\n").find("domains.txt line 3: 'node1': expected a host"),
            std::string::npos);
  EXPECT_NE(problem_of("a b c\n").find("domains.txt line 1"), std::string::npos);
  EXPECT_NE(problem_of("a b\na c\n").find("line 2: host a is in domain c here, and in b above"),
            std::string::npos);
  EXPECT_THROW(FailureDomains::read("/nonexistent/domains.txt"), base::ConfigError);
}

}  // namespace
}  // namespace trireme::train
