// SPDX-License-Identifier: Apache-2.0
#include "comm/levels/rank_nodes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "comm/world/process_group.h"

namespace trireme::comm {

std::vector<int> nodes_of_ranks(ProcessWorld& world, double deadline_s) {
  const RankInfo& info = world.info();
  if (info.local_world == info.world) return {};  // of one node, which all ranks know
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  const std::vector<std::string> all =
      gather_texts(world, world_group(world, "world"), {"node", 0, deadline_s, true},
                   fmt::format("{} {}", info.node, host.data()));
  std::map<std::string, int> number_of;
  std::vector<int> nodes;
  for (const std::string& node : all) {
    nodes.push_back(number_of.emplace(node, static_cast<int>(number_of.size())).first->second);
  }
  return number_of.size() > 1 ? nodes : std::vector<int>{};
}

}  // namespace trireme::comm
