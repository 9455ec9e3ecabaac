// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/json.h"
#include "base/text/json_depth.h"
#include "comm/failure/verdict.h"

namespace trireme::agent {
namespace {

// The node for `count` ranks at once, as far as possible; -1: there is no spare.
int best_node(std::span<const int> free, int count) {
  int best = -1;
  for (int node = 0; node < std::ssize(free); ++node) {
    const int has = free[static_cast<size_t>(node)];
    if (has <= 0) continue;
    if (best < 0) {
      best = node;
      continue;
    }
    const int best_has = free[static_cast<size_t>(best)];
    // The one with the fewest that suffice; otherwise the one with the most.
    const bool is_better = has >= count ? best_has < count || has < best_has : has > best_has;
    if (is_better) best = node;
  }
  return best;
}

}  // namespace

std::vector<int> Placement::ranks_on(int node) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < node_of.size(); ++rank) {
    if (node_of[rank] == node) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

bool Placement::is_lost(int node) const { return std::ranges::binary_search(lost, node); }

std::vector<int> Placement::nodes_left(int nodes) const {
  std::vector<int> left;
  for (int node = 0; node < nodes; ++node) {
    if (!is_lost(node)) left.push_back(node);
  }
  return left;
}

Placement first_placement(int ranks_a_node, int nodes) {
  Placement placement;
  for (int node = 0; node < nodes; ++node) {
    placement.node_of.insert(placement.node_of.end(), static_cast<size_t>(ranks_a_node), node);
  }
  return placement;
}

Move move_ranks(const Placement& before, std::span<const int> lost, std::span<const int> spares) {
  Placement after = before;
  ++after.version;
  for (const int node : lost) {
    if (!after.is_lost(node)) after.lost.push_back(node);
    std::ranges::sort(after.lost);
  }
  std::vector<int> free(spares.begin(), spares.end());
  for (const int node : after.lost) {
    if (node < std::ssize(free)) free[static_cast<size_t>(node)] = 0;
  }
  for (const int node : after.lost) {
    std::vector<int> ranks = after.ranks_on(node);
    while (!ranks.empty()) {
      const int target = best_node(free, static_cast<int>(std::ssize(ranks)));
      if (target < 0) {
        return {.placement = {},
                .problem = fmt::format("node {} is lost, and there is no spare for its {}", node,
                                       comm::ranks_text(ranks))};
      }
      int& has = free[static_cast<size_t>(target)];
      for (; has > 0 && !ranks.empty(); --has) {
        after.node_of[static_cast<size_t>(ranks.front())] = target;
        ranks.erase(ranks.begin());
      }
    }
  }
  return {.placement = after, .problem = {}};
}

std::string to_text(const Placement& placement) {
  return base::Json::array({placement.version, placement.node_of, placement.lost}).dump();
}

std::optional<Placement> placement_from(const std::string& text) {
  try {
    const base::Json list = base::parse_shallow_json(text);
    if (list.size() != 3) return std::nullopt;
    return Placement{.version = list.at(0).get<int64_t>(),
                     .node_of = list.at(1).get<std::vector<int>>(),
                     .lost = list.at(2).get<std::vector<int>>()};
  } catch (const base::Json::exception&) {
    return std::nullopt;  // any process may have written the text
  }
}

}  // namespace trireme::agent
