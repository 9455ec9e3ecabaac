// SPDX-License-Identifier: Apache-2.0
// Partners: which rank keeps the copy of which. Pure.
//
// Nodes keep the copies of each other in pairs, of the last three if their number is odd each those
// of the next one. So with two nodes lost at once a run of N nodes loses state with a chance of
// 1 / (N - 1).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme::train {

struct Partners {
  // By rank: the rank that keeps its copy, on another node; -1: there is one node.
  std::vector<int> keepers;
  // Nodes whose copies are kept in their own failure domain, ascending: more than half of all nodes
  // are in it.
  std::vector<int> same_domain;

  std::vector<int> ranks_kept_by(int keeper) const;  // ascending
};

// `node_of`: the node of each rank; empty: all ranks are on one. `domain_of`: the failure domain of
// node 0, 1, ... Every node keeps the copies of one other, in another domain for as many as
// possible. The i-th rank of a node has the i-th of its partner, counted again from the first if
// the partner has fewer. REQUIRES: every node has a rank.
Partners partners_of(std::span<const int> node_of, std::span<const std::string> domain_of);

// A rank's copies do not reach the rank that keeps them, or do so again.
struct PartnerNews {
  bool is_lost = false;
  int rank = 0;
  std::string text;
};

}  // namespace trireme::train
