// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that move bytes of GPU memory by NCCL. In a build without it the same
// functions say so.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/system/shared_library.h"
#include "comm/communicator.h"
#include "comm/world/process_world.h"

namespace trireme::comm {

// Empty: it can be used; else why not, and what to do.
std::string nccl_status();

// NCCL's library, loaded whether there is a GPU or not; empty in a build without NCCL.
std::vector<base::LibraryReport> nccl_libraries();

// This rank's handle on all ranks: every rank calls it. World and device, a GPU's, must outlive it;
// streams must be of that device. Work is ordered by its stream; the host waits only until NCCL has
// taken it over. When the run is aborted NCCL's kernels end, and every synchronize() of the
// device's streams throws CommAborted.
//
// Sums are NCCL's own where options.fixed_order is false, which is what NCCL is for: fixed order
// costs an exchange of everything. A maximum may lose a NaN. Not inside Stream::capture().
//
// NCCL works off the calls of one group one after the other, whatever streams they are on, and a
// send may wait for its receiver: ranks that send to each other first need a group for each way.
// The first message between two ranks holds up the host until both have come to it, unless an
// all_to_all of the group has connected all pairs before.
//
// Where ranks share a GPU, which is for tests, NCCL is told that they are on different hosts: it
// then takes the network, and is slow. Throws ConfigError with nccl_status(), CommAborted.
std::unique_ptr<Communicator> make_nccl(ProcessWorld& world, device::Device& device,
                                        Communicator::Options options);

}  // namespace trireme::comm
