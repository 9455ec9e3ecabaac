// SPDX-License-Identifier: Apache-2.0
#include "train/setup/core_share.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/host_cores.h"

namespace trireme::train {
namespace {

// The key has host and node, because some launchers do not number nodes, and tests have two nodes
// on one host.
std::string mask_key(const comm::RankInfo& info, int local_rank) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return fmt::format("cores/{}/{}/{}", host.data(), info.node, local_rank);
}

// Returns whether all keys arrived. Ranks wait for each other in a later collective in any case,
// with the user's deadline, so this does not throw.
bool wait_for_masks(comm::ProcessWorld& world, const std::vector<std::string>& keys) {
  constexpr double slice_seconds = 0.1;
  constexpr int max_slices = 100;
  for (int slice = 0; slice < max_slices; ++slice) {
    if (world.info().stop != nullptr && world.info().stop->load()) return false;
    if (world.store().wait(keys, slice_seconds)) return true;
    if (world.is_aborted() || world.has_lost_a_rank()) return false;
  }
  return false;
}

}  // namespace

int share_of_host_cores(comm::ProcessWorld& world) {
  const comm::RankInfo& info = world.info();
  const device::HostCores cores = device::host_cores();
  std::vector<std::set<int>> masks(static_cast<size_t>(info.local_world), cores.mask);
  const auto own = static_cast<size_t>(info.local_rank);
  if (info.local_world > 1) {
    std::vector<std::string> keys;
    for (int local = 0; local < info.local_world; ++local) keys.push_back(mask_key(info, local));
    world.store().set(keys[own], device::mask_text(cores.mask));
    (void)wait_for_masks(world, keys);
    const auto found = world.store().read(keys);
    for (size_t local = 0; local < masks.size(); ++local) {
      if (found[local]) masks[local] = device::mask_from(*found[local]);
    }
  }
  return device::share_of_cores(masks, own, cores.quota);
}

}  // namespace trireme::train
