// SPDX-License-Identifier: Apache-2.0
// Which ranks of a run of processes are on the same node. For use inside back ends of processes.
#pragma once

#include <vector>

#include "comm/world/process_world.h"

namespace trireme::comm {

// Returns the node of every rank, by rank, for Communicator::Options::nodes; empty if all ranks are
// on one. Two ranks are on the same node if their launcher gives them the same number of a node and
// their hosts have the same name. Collective over the world: the ranks rendezvous in the store.
std::vector<int> nodes_of_ranks(ProcessWorld&, double deadline_s);

}  // namespace trireme::comm
