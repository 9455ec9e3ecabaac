// SPDX-License-Identifier: Apache-2.0
// Bytes on the wire between processes: the predicted ones are those that communicators count, and
// the kernel's counters of the sockets agree, up to the headers of messages.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "comm/gloo.h"
#include "tests/launch/launch_rig.h"

namespace trireme::tests {
namespace {

void expect_predicted(int ranks, const Words& options) {
  Scratch scratch;
  Words words = {"--output", "all", "bytes"};
  words.insert(words.end(), options.begin(), options.end());
  const Outcome outcome = Running(scratch.path(), launch_words(ranks, 60, words)).wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::regex line(R"(rank (\d+) predicted (\d+) counted (\d+) sent (-?\d+))");
  int found = 0;
  for (std::sregex_iterator at(outcome.out.begin(), outcome.out.end(), line), end; at != end;
       ++at) {
    ++found;
    const int64_t predicted = std::stoll((*at)[2]), counted = std::stoll((*at)[3]),
                  sent = std::stoll((*at)[4]);
    EXPECT_EQ(counted, predicted) << (*at)[0];
    EXPECT_GT(predicted, 500'000) << (*at)[0];
    if (sent < 0) continue;  // an old kernel
    // Every message has a header, and the receiver's answer has one; heartbeats are short.
    EXPECT_GE(sent, predicted) << (*at)[0];
    EXPECT_LE(sent, predicted + predicted / 50) << (*at)[0];
  }
  EXPECT_EQ(found, ranks) << outcome.out;
}

class SentBytes : public testing::Test {
 protected:
  void SetUp() override {
    if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  }
};

TEST_F(SentBytes, of_context_parallelism_are_the_predicted_ones) {
  expect_predicted(2, {"--cp=2", "--kind=ring"});
  expect_predicted(4, {"--cp=4", "--kind=ulysses_gather", "--ulysses=2", "--stage=3"});
  if (std::getenv("TRIREME_FULL") == nullptr) return;
  expect_predicted(2, {"--cp=2", "--kind=ulysses"});
  expect_predicted(2, {"--cp=2", "--kind=gather"});
  expect_predicted(4, {"--cp=2", "--kind=ring", "--zero=2", "--stage=1"});
  expect_predicted(4, {"--cp=2", "--kind=gather", "--tp=2"});
}

}  // namespace
}  // namespace trireme::tests
