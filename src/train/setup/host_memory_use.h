// SPDX-License-Identifier: Apache-2.0
// Host memory of a rank, as predicted from the plan and as used.
#pragma once

#include <cstdint>

namespace trireme::train {

struct HostMemoryUse {
  int64_t predicted_bytes = 0, measured_bytes = 0;
};

// By purpose; zero: nothing is kept for it.
struct HostMemory {
  HostMemoryUse buffers;      // of the engine: batches, and signals of steps
  HostMemoryUse checkpoints;  // of saves
  HostMemoryUse rebuild;      // of the state, while the engine is replaced; measured 0: it was not
  HostMemoryUse copies;       // of the state, that outlive the process
  HostMemoryUse kept;         // likewise, of the states of other ranks
};

}  // namespace trireme::train
