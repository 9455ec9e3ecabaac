// SPDX-License-Identifier: Apache-2.0
// Starts threads, and reports the limits if the system refuses one.
#pragma once

#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/system/fatal_signals.h"
#include "base/system/rank_activity.h"

namespace trireme::base {

// "Resource temporarily unavailable; this user may have 4096 processes and threads (ulimit -u),
// this control group 1000 (pids.max)".
std::string thread_refusal(const std::error_code& error);

// Starts a thread that runs `body`, and works for the rank of the caller (rank_activity.h). Throws
// Error with the thread's `purpose` and the limits.
template <typename Body>
std::thread start_thread(std::string_view purpose, Body&& body) {
  try {
    return std::thread(
        [activity = &RankActivity::current(), body = std::forward<Body>(body)]() mutable {
          const SignalStack stack;
          const SharedActivityScope scope(*activity);
          body();
        });
  } catch (const std::system_error& error) {
    throw Error("the thread " + std::string(purpose) +
                " cannot be started: " + thread_refusal(error.code()));
  }
}

}  // namespace trireme::base
