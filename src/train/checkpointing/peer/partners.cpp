// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/peer/partners.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace trireme::train {
namespace {

using Nodes = std::vector<int>;

// Returns the nodes of each domain, the domain with the most first, and among equals that with the
// lowest node.
std::vector<Nodes> by_domain(std::span<const std::string> domain_of) {
  std::vector<std::pair<std::string, Nodes>> domains;
  for (size_t node = 0; node < domain_of.size(); ++node) {
    auto found = std::ranges::find(domains, domain_of[node], &std::pair<std::string, Nodes>::first);
    if (found == domains.end()) found = domains.insert(found, {domain_of[node], {}});
    found->second.push_back(static_cast<int>(node));
  }
  std::vector<Nodes> nodes;
  for (auto& domain : domains) nodes.push_back(std::move(domain.second));
  std::ranges::stable_sort(nodes, std::ranges::greater{}, &Nodes::size);
  return nodes;
}

// Takes three nodes, in three domains if the others can then be paired, otherwise in two.
std::array<int, 3> take_three(std::vector<Nodes>& domains, size_t count) {
  const bool has_majority = 2 * domains.front().size() > count;
  const size_t largest = 0, second = std::min<size_t>(1, domains.size() - 1);
  const size_t third = has_majority ? largest : std::min<size_t>(2, domains.size() - 1);
  std::array<int, 3> taken{};
  size_t at = 0;
  for (const size_t domain : {largest, second, third}) {
    taken[at++] = domains[domain].back();
    domains[domain].pop_back();
  }
  std::ranges::stable_sort(domains, std::ranges::greater{}, &Nodes::size);
  return taken;
}

// Returns the node that keeps the copies of each.
Nodes keepers_of_nodes(std::span<const std::string> domain_of) {
  Nodes keepers(domain_of.size(), -1);
  const auto keep = [&keepers](int of, int keeper) { keepers[static_cast<size_t>(of)] = keeper; };
  std::vector<Nodes> domains = by_domain(domain_of);
  if (domain_of.size() % 2 == 1) {
    const auto [a, b, c] = take_three(domains, domain_of.size());
    keep(a, b);
    keep(b, c);
    keep(c, a);
  }
  Nodes rest;
  for (const Nodes& domain : domains) rest.insert(rest.end(), domain.begin(), domain.end());
  // Nodes of a domain follow each other: only of one with more than half of all two are paired.
  const size_t half = rest.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    keep(rest[i], rest[i + half]);
    keep(rest[i + half], rest[i]);
  }
  return keepers;
}

}  // namespace

std::vector<int> Partners::ranks_kept_by(int keeper) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < keepers.size(); ++rank) {
    if (keepers[rank] == keeper) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

Partners partners_of(std::span<const int> node_of, std::span<const std::string> domain_of) {
  Partners partners{.keepers = std::vector<int>(node_of.size(), -1), .same_domain = {}};
  if (domain_of.size() < 2) return partners;
  std::vector<std::vector<int>> ranks(domain_of.size());
  for (size_t rank = 0; rank < node_of.size(); ++rank) {
    ranks.at(static_cast<size_t>(node_of[rank])).push_back(static_cast<int>(rank));
  }
  const Nodes keepers = keepers_of_nodes(domain_of);
  for (size_t node = 0; node < ranks.size(); ++node) {
    const auto keeper = static_cast<size_t>(keepers[node]);
    const std::vector<int>& others = ranks[keeper];
    TRIREME_CHECK(keeper != node && !others.empty(), "node {} keeps the copies of node {}", keeper,
                  node);
    for (size_t i = 0; i < ranks[node].size(); ++i) {
      partners.keepers[static_cast<size_t>(ranks[node][i])] = others[i % others.size()];
    }
    if (domain_of[node] == domain_of[keeper])
      partners.same_domain.push_back(static_cast<int>(node));
  }
  return partners;
}

}  // namespace trireme::train
