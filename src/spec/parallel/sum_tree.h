// SPDX-License-Identifier: Apache-2.0
// The order in which partial sums of gradients are added: one tree over the logical workers, the
// same for every number of ranks that host them, so that every layout gives the same bits.
//
// The tree over leaves [0, n) is a leaf if n is 1; otherwise the sum of the tree over the first p
// leaves and the tree over the rest, p being the largest power of two below n. Every node is
// rounded to the type of the sums. The leaves of a rank fold into at most 2 log2(n) nodes, and into
// one node if they are an aligned power of two.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/parallel/shard.h"

namespace trireme::spec {

// Returns the smallest set of nodes, as ranges of leaves in order, that makes up `held`. REQUIRES:
// 0 <= held.begin < held.end <= leaves.
std::vector<Range> tree_cover(int64_t leaves, Range held);

// A program that adds up parts on a stack machine. `push` pushes the next part; `add` replaces the
// two topmost values a, b by a + b.
enum class TreeOp : uint8_t { push, add };
// `parts` are nodes of the tree over [0, leaves), in order, that together cover all leaves. The
// program leaves one value on the stack, which is never deeper than log2(leaves) + 2.
std::vector<TreeOp> tree_program(int64_t leaves, std::span<const Range> parts);
// The same for one node of a tree.
std::vector<TreeOp> tree_program(Range node, std::span<const Range> parts);

// A node of a tree that is the sum of the parts with these indexes.
struct PartialSum {
  Range node, parts;
  bool operator==(const PartialSum&) const = default;
};
// Returns the largest nodes of the tree over [0, leaves) that `parts` add up to: nodes of that tree
// in order, which need not be all of it.
std::vector<PartialSum> partial_sums(int64_t leaves, std::span<const Range> parts);

// Returns the leaves that rank `rank` of `ranks` hosts: equal shares, in order. REQUIRES: leaves %
// ranks == 0.
Range leaves_of_rank(int64_t leaves, int ranks, int rank);

}  // namespace trireme::spec
