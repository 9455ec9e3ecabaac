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
ProcessGroup everyone(const ProcessWorld& world, const std::string& key);

// One of the times that the ranks of a group meet: all ranks count the same.
struct Occasion {
  std::string what;  // "barrier"
  int64_t number = 0;
  double deadline_s = 0;
};

// Each of these waits for all ranks and throws CommAborted when the run is aborted or the deadline
// passes, which aborts it.
void meet(ProcessWorld& world, const ProcessGroup& group, const Occasion& occasion);
// What every rank says, by rank. It asks the store again and again: for small groups, or rarely.
std::vector<std::string> tell_all(ProcessWorld& world, const ProcessGroup& group,
                                  const Occasion& occasion, const std::string& text);

// How a group falls into parts.
struct Division {
  ProcessGroup part;    // of this rank
  int color_place = 0;  // of its color among all, in ascending order
  int64_t largest = 0;  // ranks of the largest part
};
Division divide(ProcessWorld& world, const ProcessGroup& group, const Occasion& occasion, int color,
                int key);

}  // namespace trireme::comm
