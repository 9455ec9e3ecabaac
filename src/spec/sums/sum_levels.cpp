// SPDX-License-Identifier: Apache-2.0
#include "spec/sums/sum_levels.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace trireme::spec {
namespace {

NodeSums sums_of_node(int64_t leaves, std::span<const std::vector<Range>> parts,
                      std::span<const int> ranks) {
  NodeSums node;
  for (size_t place = 0; place < ranks.size(); ++place) {
    const std::vector<Range>& own = parts[static_cast<size_t>(ranks[place])];
    for (size_t part = 0; part < own.size(); ++part) {
      node.parts.push_back({static_cast<int>(place), static_cast<int>(part), own[part]});
    }
  }
  std::ranges::sort(node.parts, {}, [](const NodePart& part) { return part.node.begin; });
  std::vector<Range> ranges;
  for (const NodePart& part : node.parts) ranges.push_back(part.node);
  node.sums = partial_sums(leaves, ranges);
  return node;
}

}  // namespace

int NodeGrid::node_of(int rank) const {
  const auto found = std::ranges::find_if(
      ranks, [rank](const auto& node) { return std::ranges::find(node, rank) != node.end(); });
  TRIREME_CHECK(found != ranks.end(), "rank {} is on none of {} nodes", rank, nodes());
  return static_cast<int>(found - ranks.begin());
}

int NodeGrid::place_of(int rank) const {
  const std::vector<int>& node = ranks[static_cast<size_t>(node_of(rank))];
  return static_cast<int>(std::ranges::find(node, rank) - node.begin());
}

std::optional<NodeGrid> node_grid(std::span<const int> nodes) {
  std::map<int, size_t> index_of;
  NodeGrid grid;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    const auto [found, is_new] = index_of.emplace(nodes[rank], grid.ranks.size());
    if (is_new) grid.ranks.emplace_back();
    grid.ranks[found->second].push_back(static_cast<int>(rank));
  }
  if (grid.ranks.size() < 2 || grid.places() < 2) return std::nullopt;
  const bool is_even = std::ranges::all_of(
      grid.ranks, [&](const auto& node) { return node.size() == grid.ranks.front().size(); });
  if (!is_even) return std::nullopt;
  return grid;
}

std::optional<SumLevels> sum_levels(int64_t leaves, std::span<const std::vector<Range>> parts,
                                    const NodeGrid& grid) {
  SumLevels levels;
  int64_t all_parts = 0;
  std::vector<std::pair<Range, FarPart>> far;
  for (const std::vector<int>& ranks : grid.ranks) {
    const auto node = static_cast<int>(levels.nodes.size());
    const NodeSums& sums = levels.nodes.emplace_back(sums_of_node(leaves, parts, ranks));
    all_parts += std::ssize(sums.parts);
    for (size_t sum = 0; sum < sums.sums.size(); ++sum) {
      far.push_back({sums.sums[sum].node, {node, static_cast<int>(sum)}});
    }
  }
  const int64_t far_parts = std::ssize(far), nodes = grid.nodes();
  if (far_parts == all_parts) return std::nullopt;
  for (const NodeSums& node : levels.nodes) {
    levels.slots = std::max({levels.slots, nodes * std::ssize(node.parts),
                             far_parts + (nodes - 1) * std::ssize(node.sums)});
  }
  if (levels.slots > 2 * all_parts) return std::nullopt;
  std::ranges::sort(far, {}, [](const auto& part) { return part.first.begin; });
  std::vector<Range> ranges;
  for (const auto& [range, part] : far) {
    ranges.push_back(range);
    levels.far.push_back(part);
  }
  levels.far_program = tree_program(leaves, ranges);
  return levels;
}

SharesSent shares_sent(int64_t leaves, std::span<const std::vector<Range>> parts,
                       std::span<const int> nodes, int rank) {
  const auto ranks = std::ssize(parts);
  const auto own_parts = std::ssize(parts[static_cast<size_t>(rank)]);
  if (nodes.empty()) return {own_parts * (ranks - 1), 0};
  TRIREME_CHECK(std::ssize(nodes) == ranks, "{} nodes of {} ranks", nodes.size(), ranks);
  if (const auto grid = node_grid(nodes)) {
    if (const auto levels = sum_levels(leaves, parts, *grid)) {
      const auto& sums = levels->nodes[static_cast<size_t>(grid->node_of(rank))].sums;
      const int64_t far = std::ssize(sums) * (grid->nodes() - 1);
      return {own_parts * grid->nodes() * (grid->places() - 1) + far, far};
    }
  }
  const int64_t near = std::ranges::count(nodes, nodes[static_cast<size_t>(rank)]);
  return {own_parts * (ranks - 1), own_parts * (ranks - near)};
}

}  // namespace trireme::spec
