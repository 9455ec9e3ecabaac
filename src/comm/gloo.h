// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that move bytes of host memory over TCP by Gloo. In a build without it the
// same functions say so.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/world/process_world.h"

namespace trireme::comm {

// Empty: it can be used; else why not, and what to do.
std::string gloo_status();

// This rank's handle on all ranks: every rank calls it. The world must outlive it. Streams must be
// those of a CpuDevice. Throws ConfigError with gloo_status(), CommAborted.
std::unique_ptr<Communicator> make_gloo(ProcessWorld& world, Communicator::Options options);

}  // namespace trireme::comm
