// SPDX-License-Identifier: Apache-2.0
// ProcessGroup: a group of ranks as the store knows it, whatever carries their bytes; and how the
// hosts of its ranks meet there. For use inside back ends of processes.
#pragma once

#include <string>
#include <vector>

#include "comm/world/process_world.h"

namespace trireme::comm {

struct ProcessGroup {
  int rank = 0;                  // of this process, in the group
  std::vector<int> world_ranks;  // by rank of the group
  std::string key;               // in the store, the same on all ranks of the group

  int size() const { return static_cast<int>(world_ranks.size()); }
};

// All ranks.
ProcessGroup world_group(const ProcessWorld& world, const std::string& key);

// One of the times that the ranks of a group meet: all ranks count the same.
struct SyncPoint {
  std::string what;  // "barrier"
  int64_t number = 0;
  double deadline_s = 0;
};

// Each of these waits for all ranks and throws CommAborted when the run is aborted or the deadline
// passes, which aborts it.
void store_barrier(ProcessWorld& world, const ProcessGroup& group, const SyncPoint& point);
// What every rank says, by rank. It asks the store again and again: for small groups, or rarely.
std::vector<std::string> gather_texts(ProcessWorld& world, const ProcessGroup& group,
                                      const SyncPoint& point, const std::string& text);

// How a group falls into parts.
struct GroupSplit {
  ProcessGroup subgroup;  // of this rank
  int color_index = 0;    // of its color among all, in ascending order
  int64_t largest = 0;    // ranks of the largest part
};
GroupSplit split_group(ProcessWorld& world, const ProcessGroup& group, const SyncPoint& point,
                       int color, int key);

}  // namespace trireme::comm
