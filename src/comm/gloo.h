// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that exchange host memory over TCP with Gloo. In a build without Gloo the same
// functions report that.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/world/process_world.h"

namespace trireme::comm {

// Returns an empty text if Gloo can be used, otherwise why not and what to do.
std::string gloo_status();

// Returns this rank's handle on the group of all ranks; every rank calls it. The world must outlive
// it. Streams must be those of a CpuDevice. Throws ConfigError with gloo_status(), CommAborted.
std::unique_ptr<Communicator> make_gloo(ProcessWorld& world, Communicator::Options options);

}  // namespace trireme::comm
