// SPDX-License-Identifier: Apache-2.0
// The clock that deadlines are measured by.
#pragma once

#include <chrono>

namespace trireme::comm {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace trireme::comm
