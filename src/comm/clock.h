// SPDX-License-Identifier: Apache-2.0
// The clock that deadlines are measured by.
#pragma once

#include <chrono>

namespace trireme::comm {

using Clock = std::chrono::steady_clock;

inline double seconds_of(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}
inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace trireme::comm
