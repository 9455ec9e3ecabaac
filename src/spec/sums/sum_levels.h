// SPDX-License-Identifier: Apache-2.0
// Sums in the fixed tree in two levels: first among the ranks of a node, then among nodes. The tree
// stays the same (sum_tree.h), and so do the bits; only what crosses the network changes.
//
// R = n k ranks, k on each of n nodes, sum b bytes, and each of them receives the sum of b / R.
//   - One level: every rank sends each other rank its part: (R - k) b / R of every rank, so
//     k (n-1)/n b of every node, cross the network.
//   - Two levels: the rank at place i of a node sums what the ranks of its node have for the ranks
//     at place i of all nodes, b / k. It then sends each of those its partial sum of b / R. (n-1)/n
//     b of every node cross the network if the leaves of a node fold into one node of the tree, and
//     m (n-1)/n b if they fold into m. m is 1 if the ranks of a node host an aligned power of two
//     of leaves.
//   - A ring, for comparison: every rank sends the next one (R-1)/R b, and one rank of each node
//     has its next one on another node: (R-1)/R b of every node, never less than (n-1)/n b.
// Both levels together send (R-1)/R b from every rank, as one level and a ring do, if every rank
// has one part of the sum and m is 1.
//
// An all-gather of b bytes is the same backwards: (n-1)/n b of every node, then copies inside it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "spec/parallel/sum_tree.h"

namespace trireme::spec {

// The ranks of a group by node and place in the node, in ascending order of the ranks of a node.
struct NodeGrid {
  std::vector<std::vector<int>> ranks;

  int nodes() const { return static_cast<int>(ranks.size()); }
  int places() const { return static_cast<int>(ranks.front().size()); }
  // Return where a rank of the group is. REQUIRES: it is in the grid.
  int node_of(int rank) const;
  int place_of(int rank) const;
};
// `nodes` are the nodes of the ranks of a group, by rank, as any numbers. Returns none if the group
// has one level: its ranks are on one node, or nodes have one rank, or different numbers of them.
std::optional<NodeGrid> node_grid(std::span<const int> nodes);

// Part `part` of the sum of the rank at `place` of a node.
struct NodePart {
  int place = 0;
  int part = 0;
  Range node;  // of the tree
};
struct NodeSums {
  std::vector<NodePart> parts;   // of all ranks of the node, in the order of the leaves
  std::vector<PartialSum> sums;  // what they fold into; indexes of `parts`
};
// A partial sum of a node that is added in the second level: nodes[node].sums[sum].
struct FarPart {
  int node = 0;
  int sum = 0;
};
struct SumLevels {
  std::vector<NodeSums> nodes;  // by index in the grid
  std::vector<FarPart> far;     // of all nodes, in the order of the leaves
  std::vector<TreeOp> far_program;
  // How many chunks of the result a rank holds at the same time, the same number on all ranks: the
  // parts of its node for n ranks, and then the partial sums of all nodes beside its own for n
  // ranks. At most twice the number of parts of all ranks.
  int64_t slots = 0;
};
// `parts` are the nodes of the tree over [0, leaves) that each rank of the group contributes, which
// together are the tree. Returns none if one level is to be used: the parts of no node fold, as
// with every second leaf on the other node, or the slots would be too many.
std::optional<SumLevels> sum_levels(int64_t leaves, std::span<const std::vector<Range>> parts,
                                    const NodeGrid& grid);

// What a rank sends for a sum of which every rank receives one share, in shares; of that, to ranks
// of other nodes.
struct SharesSent {
  int64_t all = 0, far = 0;
  bool operator==(const SharesSent&) const = default;
};
// `nodes` as for node_grid(), or empty: one node.
SharesSent shares_sent(int64_t leaves, std::span<const std::vector<Range>> parts,
                       std::span<const int> nodes, int rank);

}  // namespace trireme::spec
