// SPDX-License-Identifier: Apache-2.0
// Bytes between nodes, by the counters of network interfaces: every node is a network namespace
// with one interface, and a step leaves it with at most what a ring would send, and with the bits
// of one rank. Skipped with the reason where namespaces are not permitted.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <regex>

#include "comm/gloo.h"
#include "tests/launch/launch_rig.h"

namespace trireme::tests {
namespace {

constexpr int ranks_a_node = 4;

// Returns why the command failed; empty if it did not.
std::string problem_of(const Scratch& scratch, const std::string& line) {
  const Outcome outcome = Running(scratch.path(), words_of("/usr/bin/env " + line)).wait();
  return outcome.exit_code == 0 ? "" : fmt::format("{}: {}{}", line, outcome.out, outcome.err);
}

// Network namespaces that are connected by a bridge in one more. Each has the interface "net" with
// the address 10.77.0.<node + 1>. They end with this object.
class NodeSpaces {
 public:
  explicit NodeSpaces(int nodes) : nodes_(nodes) {
    // Packets as long as messages: their headers are a small part of the bytes.
    const std::string setup = "ip netns add {0} | ip -n {0} link set lo up";
    add(setup, bridge(), bridge());
    add("ip -n {0} link add bridge type bridge | ip -n {0} link set bridge up", bridge(), bridge());
    for (int node = 0; node < nodes_; ++node) {
      add(setup, name(node), bridge());
      add(fmt::format("ip -n {{0}} link add net mtu 65000 type veth peer name n{0} mtu 65000 netns "
                      "{{1}} | ip -n {{1}} link set n{0} master bridge up | ip -n {{0}} addr add "
                      "10.77.0.{1}/24 dev net | ip -n {{0}} link set net up",
                      node, node + 1),
          name(node), bridge());
    }
  }
  ~NodeSpaces() {
    for (int node = 0; node < nodes_; ++node)
      (void)problem_of(scratch_, "ip netns del " + name(node));
    (void)problem_of(scratch_, "ip netns del " + bridge());
  }
  NodeSpaces(const NodeSpaces&) = delete;
  NodeSpaces& operator=(const NodeSpaces&) = delete;

  const std::string& problem() const { return problem_; }  // empty: they work
  std::string name(int node) const { return fmt::format("trireme{}n{}", ::getpid(), node); }

 private:
  std::string bridge() const { return fmt::format("trireme{}", ::getpid()); }
  // Runs commands, separated by bars, until one fails.
  void add(const std::string& commands, const std::string& node, const std::string& all) {
    const std::string text = fmt::format(fmt::runtime(commands), node, all);
    for (size_t at = 0; at != std::string::npos && problem_.empty();) {
      const size_t end = text.find(" | ", at);
      problem_ = problem_of(scratch_, text.substr(at, end == std::string::npos ? end : end - at));
      at = end == std::string::npos ? end : end + 3;
    }
  }

  Scratch scratch_;
  const int nodes_;
  std::string problem_;
};

// One launcher in each namespace; returns what they print.
std::string run_on(const NodeSpaces& spaces, int nodes, const Words& mode) {
  const Scratch scratch;
  std::vector<std::unique_ptr<Running>> launchers;
  for (int node = 0; node < nodes; ++node) {
    Words words = {"/usr/bin/env",   "TRIREME_TOKEN=of-the-test", "ip", "netns", "exec",
                   spaces.name(node)};
    Words more = {"--nnodes", std::to_string(nodes), "--node-rank", std::to_string(node),
                  "--rdzv",   "10.77.0.1:29577",     "--output",    "all"};
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
    const Scratch scratch;
    const std::string problem = problem_of(scratch, "sh -c 'command -v ip'");
    if (!problem.empty()) GTEST_SKIP() << "the program ip (iproute2) is not installed";
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
