// SPDX-License-Identifier: Apache-2.0
// The number of threads of a rank that is a process: its share of the cores of its host.
#pragma once

#include "comm/world/process_world.h"

namespace trireme::train {

// Ranks of one host publish in the store which cores they may use; cores that several may use are
// divided among them (device::share_of_cores). If a launcher has given each rank separate cores,
// the rank has these. A rank that publishes nothing within 10 s counts as one with the same cores.
int share_of_host_cores(comm::ProcessWorld& world);

}  // namespace trireme::train
