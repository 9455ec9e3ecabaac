// SPDX-License-Identifier: Apache-2.0
// How many threads a rank that is a process takes: its share of the cores of its host.
#pragma once

#include "comm/world/process_world.h"

namespace trireme::train {

// Ranks of one host tell each other through the store which cores they may use; those of several
// are shared (device::share_of_cores). Where a launcher has given each rank cores of its own, it
// has these. A rank that does not come for 10 s counts as one that may use the cores of this one.
int share_of_host_cores(comm::ProcessWorld& world);

}  // namespace trireme::train
