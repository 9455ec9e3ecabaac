// SPDX-License-Identifier: Apache-2.0
#include "data/inspect.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/text/json.h"
#include "data/files_test.h"

namespace trireme::data {
namespace {

TEST(InspectTest, inspection_counts_documents_lengths_and_tokens) {
  std::vector<int32_t> tokens;
  for (int32_t length = 1; length <= 100; ++length) {
    tokens.insert(tokens.end(), static_cast<size_t>(length - 1), 7);
    tokens.push_back(3);
  }
  const DatasetReport report = inspect(*tokens_in_memory(tokens, 3), {});
  EXPECT_EQ(report.documents, 100);
  EXPECT_EQ(report.tokens, 5050);
  EXPECT_EQ(report.length.min, 1);
  EXPECT_EQ(report.length.median, 50);
  EXPECT_EQ(report.length.p90, 90);
  EXPECT_EQ(report.length.p99, 99);
  EXPECT_EQ(report.length.max, 100);
  EXPECT_DOUBLE_EQ(report.length.mean, 50.5);
  EXPECT_NEAR(report.length.skew, 0, 1e-12);
  EXPECT_EQ(report.token_min, 3);
  EXPECT_EQ(report.token_max, 7);
  EXPECT_EQ(report.distinct_tokens, 2);
  ASSERT_EQ(report.top_tokens.size(), 2U);
  EXPECT_EQ(report.top_tokens[0].token, 7);
  EXPECT_EQ(report.top_tokens[0].count, 4950);
  EXPECT_EQ(to_json(report)["length"]["p90"], 90);
  EXPECT_TRUE(says(to_text(report), {"documents  100"}));
}

TEST(InspectTest, inspection_sees_skew_large_ids_and_empty_data) {
  // Lengths 1, 1, 4: mean 2, moments 2 and 2, skew 2 / 2^1.5.
  const DatasetReport skewed = inspect(*tokens_in_memory({0, 0, 5, 2000000000, 5, 0}, 0), {});
  EXPECT_NEAR(skewed.length.skew, 1 / std::sqrt(2.0), 1e-12);
  EXPECT_EQ(skewed.token_max, 2000000000);
  EXPECT_EQ(skewed.distinct_tokens, 3);
  const DatasetReport empty = inspect(*tokens_in_memory({}, -1), {});
  EXPECT_EQ(empty.documents, 0);
  EXPECT_EQ(empty.token_max, -1);
  EXPECT_TRUE(says(to_text(empty), {"tokens     0"}));
}

}  // namespace
}  // namespace trireme::data
