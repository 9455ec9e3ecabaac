// SPDX-License-Identifier: Apache-2.0
// Every call of a Communicator on generated data, the same for every back end: ranks as threads and
// as processes must produce the same bits.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "device/device.h"

namespace trireme::tests {

// Returns the SHA-256 of all results of this rank. Throws std::runtime_error if a known result is
// wrong.
std::string exercise(comm::Communicator& world, device::Device& device);

// Compares sums of a group in the library's order with the same ranks' sums in the fixed order.
// Returns the largest difference, relative to the largest element. Throws std::runtime_error if it
// exceeds the rounding error.
double library_error(comm::Communicator& fixed, comm::Communicator& library,
                     device::Device& device);

}  // namespace trireme::tests
