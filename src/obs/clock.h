// SPDX-License-Identifier: Apache-2.0
// Clocks as parameters, so that tests drive the time.
#pragma once

#include <chrono>
#include <functional>

namespace trireme::obs {

using Clock = std::function<double()>;  // seconds

// Since 1970, for time stamps.
inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Since some fixed moment, never backwards, for durations.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace trireme::obs
