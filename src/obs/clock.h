// SPDX-License-Identifier: Apache-2.0
// Clocks as parameters, so that tests control the time.
#pragma once

#include <chrono>
#include <functional>

namespace trireme::obs {

using Clock = std::function<double()>;  // seconds

// Returns the seconds since 1970, for time stamps.
inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Returns the seconds since a fixed moment, monotonic, for durations.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace trireme::obs
