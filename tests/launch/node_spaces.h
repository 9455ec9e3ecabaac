// SPDX-License-Identifier: Apache-2.0
// Hosts of a test: network namespaces that are connected by a bridge in one more. Each has the
// interface "net" with the address 10.77.0.<node + 1>. They end with the object.
#pragma once

#include <string>

#include "tests/launch/launch_rig.h"

namespace trireme::tests {

class NodeSpaces {
 public:
  explicit NodeSpaces(int nodes);
  ~NodeSpaces();
  NodeSpaces(const NodeSpaces&) = delete;
  NodeSpaces& operator=(const NodeSpaces&) = delete;

  // Returns why no object can work; empty: nothing is known to be missing.
  static std::string missing();
  const std::string& problem() const { return problem_; }  // empty: they work
  static std::string rendezvous() { return "10.77.0.1:29577"; }
  // Returns the words before a program's that run it on a node, with the token of a job.
  Words words_on(int node) const;
  // Packets from and to the node are lost from now on, or no longer. Connections stay open.
  void cut(int node, bool is_cut);

 private:
  std::string name(int node) const;
  std::string bridge() const;
  // Runs commands, separated by bars, until one fails.
  void add(const std::string& commands, const std::string& node, const std::string& all);

  Scratch scratch_;
  const int nodes_;
  std::string problem_;
};

}  // namespace trireme::tests
