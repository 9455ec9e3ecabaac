// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/sum_tree.h"

#include <bit>

#include "base/check.h"

namespace trireme::spec {
namespace {

// Returns where a node of more than one leaf is split in two.
int64_t middle_of(Range node) {
  const auto leaves = static_cast<uint64_t>(node.end - node.begin);
  return node.begin + static_cast<int64_t>(std::bit_floor(leaves - 1));
}

void cover(Range node, Range held, std::vector<Range>& nodes) {
  if (node.end <= held.begin || held.end <= node.begin) return;
  if (held.begin <= node.begin && node.end <= held.end) {
    nodes.push_back(node);
    return;
  }
  const int64_t middle = middle_of(node);
  cover({node.begin, middle}, held, nodes);
  cover({middle, node.end}, held, nodes);
}

// Appends the program of `node`; `next` is the first part that is not pushed yet.
void add_up(Range node, std::span<const Range> parts, size_t& next, std::vector<TreeOp>& program) {
  TRIREME_CHECK(
      next < parts.size() && parts[next].begin == node.begin && parts[next].end <= node.end,
      "part {} of the sum is not a node at leaf {}", next, node.begin);
  if (parts[next] == node) {
    ++next;
    program.push_back(TreeOp::push);
    return;
  }
  const int64_t middle = middle_of(node);
  add_up({node.begin, middle}, parts, next, program);
  add_up({middle, node.end}, parts, next, program);
  program.push_back(TreeOp::add);
}

// Appends the largest sums inside `node` of the parts from `next` on; returns whether they are one,
// of the whole node.
bool fold(Range node, std::span<const Range> parts, size_t& next, std::vector<PartialSum>& sums) {
  if (next == parts.size() || parts[next].begin >= node.end) return false;
  TRIREME_CHECK(parts[next].begin >= node.begin && parts[next].end <= node.end &&
                    (parts[next] == node || node.end - node.begin > 1),
                "part {} of the sum, leaves {} to {}, is not a node", next, parts[next].begin,
                parts[next].end);
  const auto first = static_cast<int64_t>(next);
  if (parts[next] == node) {
    ++next;
    sums.push_back({node, {first, first + 1}});
    return true;
  }
  const size_t before = sums.size();
  const int64_t middle = middle_of(node);
  const bool is_left_whole = fold({node.begin, middle}, parts, next, sums);
  const bool is_right_whole = fold({middle, node.end}, parts, next, sums);
  if (!is_left_whole || !is_right_whole) return false;
  sums.resize(before);
  sums.push_back({node, {first, static_cast<int64_t>(next)}});
  return true;
}

}  // namespace

std::vector<Range> tree_cover(int64_t leaves, Range held) {
  TRIREME_CHECK(0 <= held.begin && held.begin < held.end && held.end <= leaves,
                "leaves {} to {} of {}", held.begin, held.end, leaves);
  std::vector<Range> nodes;
  cover({0, leaves}, held, nodes);
  return nodes;
}

std::vector<TreeOp> tree_program(int64_t leaves, std::span<const Range> parts) {
  TRIREME_CHECK(leaves > 0, "a sum of {} leaves", leaves);
  return tree_program(Range{0, leaves}, parts);
}

std::vector<TreeOp> tree_program(Range node, std::span<const Range> parts) {
  std::vector<TreeOp> program;
  size_t next = 0;
  add_up(node, parts, next, program);
  TRIREME_CHECK(next == parts.size(), "{} of {} parts are the whole sum of leaves {} to {}", next,
                parts.size(), node.begin, node.end);
  return program;
}

std::vector<PartialSum> partial_sums(int64_t leaves, std::span<const Range> parts) {
  TRIREME_CHECK(leaves > 0, "a sum of {} leaves", leaves);
  std::vector<PartialSum> sums;
  size_t next = 0;
  (void)fold({0, leaves}, parts, next, sums);
  TRIREME_CHECK(next == parts.size(), "part {} of {} is not a node of the tree over {} leaves",
                next, parts.size(), leaves);
  return sums;
}

Range leaves_of_rank(int64_t leaves, int ranks, int rank) {
  TRIREME_CHECK(ranks > 0 && leaves > 0 && leaves % ranks == 0 && rank >= 0 && rank < ranks,
                "{} leaves on rank {} of {}", leaves, rank, ranks);
  const int64_t share = leaves / ranks;
  return {rank * share, (rank + 1) * share};
}

}  // namespace trireme::spec
