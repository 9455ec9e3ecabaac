// SPDX-License-Identifier: Apache-2.0
// A rank whose device spins for ever is named while its host goes on: over Gloo, with streams that
// are threads. tests/gpu/hang_test.cpp does the same with kernels of a GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "comm/gloo.h"
#include "tests/launch/spin/spin_rig.h"

namespace trireme::tests {
namespace {

class SpinTest : public testing::TestWithParam<int> {};

TEST_P(SpinTest, the_rank_whose_device_spins_is_named) {
  if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  const int count = std::getenv("TRIREME_FULL") != nullptr ? 10 : 1;
  std::vector<SpinResult> results;
  for (int i = 0; i < count; ++i) {
    results.push_back(spin_once({.ranks = GetParam(), .seed = 1 + static_cast<uint64_t>(i)}));
    EXPECT_TRUE(results.back().is_named) << results.back().text;
    if (HasFailure()) return;
  }
  print_summary(fmt::format("{} ranks on threads", GetParam()), results);
}

TEST(Spin, a_rank_that_spins_is_replaced_and_the_bits_stay) {
  if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  expect_spin_is_survived(2, false, 300);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SpinTest, testing::Values(1, 2, 4));

}  // namespace
}  // namespace trireme::tests
