// SPDX-License-Identifier: Apache-2.0
// Bytes between nodes, by the counters of network interfaces: every node is a network namespace
// with one interface, and a step leaves it with at most what a ring would send, and with the bits
// of one rank. Skipped with the reason where namespaces are not permitted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <regex>

#include "comm/gloo.h"
#include "tests/launch/launch_rig.h"
#include "tests/launch/node_spaces.h"

namespace trireme::tests {
namespace {

constexpr int ranks_a_node = 4;

// One launcher in each namespace; returns what they print.
std::string run_on(const NodeSpaces& spaces, int nodes, const Words& mode) {
  const Scratch scratch;
  std::vector<std::unique_ptr<Running>> launchers;
  for (int node = 0; node < nodes; ++node) {
    Words words = spaces.words_on(node);
    Words more = {"--nnodes", std::to_string(nodes),    "--node-rank", std::to_string(node),
                  "--rdzv",   NodeSpaces::rendezvous(), "--output",    "all"};
    more.insert(more.end(), mode.begin(), mode.end());
    const Words launch = launch_words(ranks_a_node, 120, more);
    words.insert(words.end(), launch.begin(), launch.end());
    launchers.push_back(std::make_unique<Running>(scratch.path(), words));
  }
  std::string text;
  for (const auto& launcher : launchers) {
    const Outcome outcome = launcher->wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    text += outcome.out;
  }
  return text;
}

std::string weights_of_one_rank(const Words& mode) {
  const Scratch scratch;
  const Outcome outcome = Running(scratch.path(), launch_words(1, 60, mode)).wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::smatch found;
  EXPECT_TRUE(std::regex_search(outcome.out, found, std::regex("weights ([0-9a-f]{64})")));
  return found.size() > 1 ? found[1].str() : "";
}

// Every rank has one part of a sum, so it sends the bytes of a ring's rank, of which one on each
// node has its next rank on another node: a ring's bytes between nodes are those of one rank.
void expect_at_most_a_ring(int nodes, const Words& layout) {
  const int ranks = nodes * ranks_a_node;
  Words mode = {"bytes", fmt::format("--workers={}", ranks), "--hidden=512", "--seq-len=16"};
  const std::string weights = weights_of_one_rank(mode);
  const NodeSpaces spaces(nodes);
  if (!spaces.problem().empty()) GTEST_SKIP() << "no network namespaces: " << spaces.problem();
  mode.insert(mode.end(), layout.begin(), layout.end());
  mode.emplace_back("--interface=net");
  const std::string out = run_on(spaces, nodes, mode);
  const std::regex line(R"(rank (\d+) predicted (\d+) counted (\d+) sent -?\d+\n(?:\[rank\d+\]: )?)"
                        R"(rank \d+ left (\d+) weights ([0-9a-f]{64}))");
  int found = 0;
  for (std::sregex_iterator at(out.begin(), out.end(), line), end; at != end; ++at) {
    ++found;
    const int64_t predicted = std::stoll((*at)[2]), counted = std::stoll((*at)[3]),
                  left = std::stoll((*at)[4]);  // of all ranks of its node
    EXPECT_EQ(counted, predicted) << (*at)[0];
    EXPECT_GT(predicted, 5'000'000) << (*at)[0];
    EXPECT_GT(left, predicted / 10) << (*at)[0];
    EXPECT_LE(static_cast<double>(left), 1.05 * static_cast<double>(predicted)) << (*at)[0];
    EXPECT_EQ((*at)[5], weights) << (*at)[0];
    if (std::stoi((*at)[1]) == 0) {
      fmt::print("{} nodes: {} bytes leave node 0, a ring's are {}: {:.2f}\n", nodes, left,
                 predicted, static_cast<double>(left) / static_cast<double>(predicted));
    }
  }
  EXPECT_EQ(found, ranks) << out;
}

class NetworkBytes : public testing::Test {
 protected:
  void SetUp() override {
    if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
    if (!NodeSpaces::missing().empty()) GTEST_SKIP() << NodeSpaces::missing();
  }
};

TEST_F(NetworkBytes, are_at_most_a_rings_with_the_bits_of_one_rank) {
  expect_at_most_a_ring(2, {"--zero=8", "--stage=1"});
  if (std::getenv("TRIREME_FULL") == nullptr) return;
  expect_at_most_a_ring(2, {"--dp=8"});
  expect_at_most_a_ring(3, {"--zero=12", "--stage=1"});
  expect_at_most_a_ring(4, {"--zero=16", "--stage=1"});
  expect_at_most_a_ring(4, {"--dp=16"});
  // Parameters are gathered inside a node, gradients summed between nodes: less than one rank's.
  expect_at_most_a_ring(4, {"--dp=4", "--zero=4", "--stage=3"});
}

}  // namespace
}  // namespace trireme::tests
