// SPDX-License-Identifier: Apache-2.0
// Every call of a Communicator on made-up data, the same for every back end: ranks as threads and
// as processes must give the same bits.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "device/device.h"

namespace trireme::tests {

// SHA-256 of all results of this rank. Throws std::runtime_error if one that is known is wrong.
std::string exercise(comm::Communicator& world, device::Device& device);

// Sums of a group in the library's order against the same ranks' sums in the fixed order: the
// largest difference, relative to the largest element. Throws std::runtime_error above what
// rounding may do.
double library_error(comm::Communicator& fixed, comm::Communicator& library,
                     device::Device& device);

}  // namespace trireme::tests
