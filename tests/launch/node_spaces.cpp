// SPDX-License-Identifier: Apache-2.0
#include "tests/launch/node_spaces.h"

#include <fmt/format.h>
#include <unistd.h>

namespace trireme::tests {
namespace {

// Returns why the command failed; empty if it did not.
std::string problem_of(const Scratch& scratch, const std::string& line) {
  const Outcome outcome = Running(scratch.path(), words_of("/usr/bin/env " + line)).wait();
  return outcome.exit_code == 0 ? "" : fmt::format("{}: {}{}", line, outcome.out, outcome.err);
}

}  // namespace

NodeSpaces::NodeSpaces(int nodes) : nodes_(nodes) {
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

NodeSpaces::~NodeSpaces() {
  for (int node = 0; node < nodes_; ++node)
    (void)problem_of(scratch_, "ip netns del " + name(node));
  (void)problem_of(scratch_, "ip netns del " + bridge());
}

std::string NodeSpaces::missing() {
  const Scratch scratch;
  const std::string problem = problem_of(scratch, "sh -c 'command -v ip'");
  return problem.empty() ? "" : "the program ip (iproute2) is not installed";
}

std::string NodeSpaces::name(int node) const {
  return fmt::format("trireme{}n{}", ::getpid(), node);
}

std::string NodeSpaces::bridge() const { return fmt::format("trireme{}", ::getpid()); }

Words NodeSpaces::words_on(int node) const {
  return {"/usr/bin/env", "TRIREME_TOKEN=of-the-test", "ip", "netns", "exec", name(node)};
}

void NodeSpaces::cut(int node, bool is_cut) {
  const std::string line =
      fmt::format("ip -n {} link set n{} {}", bridge(), node, is_cut ? "down" : "up");
  problem_ = problem_of(scratch_, line);
}

void NodeSpaces::add(const std::string& commands, const std::string& node, const std::string& all) {
  const std::string text = fmt::format(fmt::runtime(commands), node, all);
  for (size_t at = 0; at != std::string::npos && problem_.empty();) {
    const size_t end = text.find(" | ", at);
    problem_ = problem_of(scratch_, text.substr(at, end == std::string::npos ? end : end - at));
    at = end == std::string::npos ? end : end + 3;
  }
}

}  // namespace trireme::tests
