// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "sim/player.h"
#include "sim/sim.h"

namespace trireme::sim {

Result simulate(const schedule::Schedule& schedule, const Costs& costs, const Links& links,
                const Options& options) {
  return Player(schedule, costs, links, options).play();
}

double Result::bubble_fraction() const {
  double busy = 0;
  for (const RankResult& rank : ranks) busy += rank.busy;
  const double all = step_time * static_cast<double>(ranks.size());
  return all > 0 ? (all - busy) / all : 0;
}

Costs uniform_costs(int stages, const StageSeconds& seconds, const StageBytes& kept,
                    double output_bytes) {
  TRIREME_CHECK(stages >= 1, "{} stages", stages);
  const auto count = static_cast<size_t>(stages);
  return {.seconds = std::vector(count, seconds),
          .kept = std::vector(count, kept),
          .output_bytes = std::vector(count, output_bytes)};
}

Links node_links(const NodeLinks& nodes) {
  TRIREME_CHECK(nodes.ranks >= 1 && nodes.ranks_per_node >= 1, "{} ranks, {} per node", nodes.ranks,
                nodes.ranks_per_node);
  Links links{.wires = {}, .wire_of = {}};
  const int node_count = (nodes.ranks + nodes.ranks_per_node - 1) / nodes.ranks_per_node;
  links.wires.assign(static_cast<size_t>(node_count), nodes.between);
  for (int from = 0; from < nodes.ranks; ++from) {
    for (int to = 0; to < nodes.ranks; ++to) {
      const int node = from / nodes.ranks_per_node;
      if (node == to / nodes.ranks_per_node) {
        links.wire_of.push_back(static_cast<int>(links.wires.size()));
        links.wires.push_back(nodes.inside);
      } else {
        links.wire_of.push_back(node);
      }
    }
  }
  return links;
}

}  // namespace trireme::sim
