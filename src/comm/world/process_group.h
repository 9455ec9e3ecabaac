// SPDX-License-Identifier: Apache-2.0
// ProcessGroup: a group of ranks as keys of the store, independent of the back end that moves their
// bytes; and the rendezvous of its hosts in the store. For use inside back ends of processes.
#pragma once

#include <string>
#include <vector>

#include "comm/world/process_world.h"

namespace trireme::comm {

struct ProcessGroup {
  int rank = 0;                  // of this process in the group
  std::vector<int> world_ranks;  // by rank in the group
  std::string key;               // in the store, the same on all ranks of the group

  int size() const { return static_cast<int>(world_ranks.size()); }
};

// Returns the group of all ranks.
ProcessGroup world_group(const ProcessWorld& world, const std::string& key);

// One rendezvous of the ranks of a group. All ranks use the same kind and number.
struct SyncPoint {
  std::string what;  // "barrier"
  int64_t number = 0;
  double deadline_s = 0;
  bool ends_on_stop = false;  // a rendezvous of the start: ProcessWorld::throw_if_ended()
};

// Each of these waits for all ranks and throws CommAborted when the run is aborted or the deadline
// passes, which aborts it.
void store_barrier(ProcessWorld& world, const ProcessGroup& group, const SyncPoint& point);
// Returns the texts of all ranks, by rank. It polls the store, so use it for small groups or
// rarely.
std::vector<std::string> gather_texts(ProcessWorld& world, const ProcessGroup& group,
                                      const SyncPoint& point, const std::string& text);

// The result of splitting a group, as seen by one rank.
struct GroupSplit {
  ProcessGroup subgroup;  // of this rank
  int color_index = 0;    // index of its color among all colors, in ascending order
  int64_t largest = 0;    // number of ranks of the largest subgroup
};
GroupSplit split_group(ProcessWorld& world, const ProcessGroup& group, const SyncPoint& point,
                       int color, int key);

}  // namespace trireme::comm
