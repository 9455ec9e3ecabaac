// SPDX-License-Identifier: Apache-2.0
// Host memory of a rank for one purpose, as predicted from the plan and as used.
#pragma once

#include <cstdint>

namespace trireme::train {

struct HostMemoryUse {
  int64_t predicted_bytes = 0, measured_bytes = 0;
};

}  // namespace trireme::train
