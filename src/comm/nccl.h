// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that exchange GPU memory with NCCL. In a build without NCCL the same functions
// report that.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/system/shared_library.h"
#include "comm/communicator.h"
#include "comm/world/process_world.h"

namespace trireme::comm {

// Returns an empty text if NCCL can be used, otherwise why not and what to do.
std::string nccl_status();

// Returns a report on NCCL's library, which is loaded even without a GPU; empty in a build without
// NCCL.
std::vector<base::LibraryReport> nccl_libraries();

// Returns this rank's handle on the group of all ranks; every rank calls it. The world and the
// device, a GPU, must outlive it; streams must be of that device. Work is ordered by its stream;
// the host waits only until NCCL has enqueued it. When the run is aborted, NCCL's kernels end, and
// every synchronize() of the device's streams throws CommAborted.
//
// With options.fixed_order == false, sums use NCCL's own algorithms, whose order is not fixed. In
// the fixed order sums are sends and receives, with no more bytes than a ring's between nodes
// (spec/sums/sum_levels.h), and additions by the device. A maximum may lose a NaN. Calls can be
// captured (Stream::capture()) once each has been made: the first one connects ranks.
//
// NCCL runs the calls of one group one after the other, on any streams, and a send may wait for its
// receiver: ranks that both send first need one group per direction. The first message between two
// ranks blocks the host until both have entered it, unless an all_to_all of the group has connected
// all pairs before.
//
// If ranks share a GPU, which is for tests, NCCL is configured as if they were on different hosts:
// it then uses the network, and is slow. Throws ConfigError with nccl_status(), CommAborted.
std::unique_ptr<Communicator> make_nccl(ProcessWorld& world, device::Device& device,
                                        Communicator::Options options);

}  // namespace trireme::comm
