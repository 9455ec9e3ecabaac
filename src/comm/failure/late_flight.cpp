// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/late_flight.h"

#include <chrono>
#include <utility>

#include "base/system/start_thread.h"

namespace trireme::comm {

LateFlight::LateFlight(std::function<void()> write) {
  thread_ = base::start_thread("that writes a flight record", [this, write = std::move(write)] {
    constexpr auto delay = std::chrono::seconds(2);
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, delay, [this] { return is_ending_; });
    }
    write();
  });
}

LateFlight::~LateFlight() {
  {
    const std::scoped_lock lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace trireme::comm
