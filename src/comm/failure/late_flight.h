// SPDX-License-Identifier: Apache-2.0
// LateFlight: writes the flight record of an aborted epoch while the process goes on with the next
// one: some time later, when that has begun, or at the latest when this object ends.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace trireme::comm {

class LateFlight {
 public:
  // `write` must not throw. Throws Error if the system refuses a thread.
  explicit LateFlight(std::function<void()> write);
  ~LateFlight();
  LateFlight(const LateFlight&) = delete;
  LateFlight& operator=(const LateFlight&) = delete;

 private:
  std::mutex mutex_;  // guards is_ending_
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace trireme::comm
