// SPDX-License-Identifier: Apache-2.0
// Placement: on which node each rank of a job runs. A job starts with as many ranks on each of its
// nodes; the ranks of a node that is lost go to nodes with spares. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::agent {

struct Placement {
  int64_t version = 0;       // grows with every change
  std::vector<int> node_of;  // by rank
  std::vector<int> lost;     // nodes that take part no more, ascending

  std::vector<int> ranks_on(int node) const;
  bool is_lost(int node) const;
  // All of them without those that are lost.
  std::vector<int> nodes_left(int nodes) const;
  bool operator==(const Placement&) const = default;
};

Placement first_placement(int ranks_a_node, int nodes);

// What the loss of nodes leads to.
struct Move {
  std::optional<Placement> placement;  // none: the spares do not suffice
  std::string problem;                 // why not
};
// Moves the ranks of lost nodes to others, which have so many spares, by node. The ranks of one
// node go to one other if its spares suffice, and otherwise where most spares are.
Move move_ranks(const Placement&, std::span<const int> lost, std::span<const int> spares);

std::string to_text(const Placement&);
// None if the text was not written by a launcher.
std::optional<Placement> placement_from(const std::string& text);

}  // namespace trireme::agent
