// SPDX-License-Identifier: Apache-2.0
// Bytes that a rank sends to one rank of its group, and receives from one, in a step of a
// collective (Communicator::do_transfer). For use inside comm.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::comm {

struct Outgoing {
  int to = 0;  // rank in the group, another one
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};

struct Incoming {
  int from = 0;  // rank in the group, another one
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

}  // namespace trireme::comm
