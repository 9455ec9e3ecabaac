// SPDX-License-Identifier: Apache-2.0
// Counts bytes on the wire without the help of the program: the kernel's counters of the sockets of
// this process.
#pragma once

#include <cstdint>

namespace trireme::tests {

// Returns the bytes that all open TCP sockets of this process have sent, without retransmissions.
// -1: the kernel does not count them.
int64_t tcp_bytes_sent();

}  // namespace trireme::tests
