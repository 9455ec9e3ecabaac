// SPDX-License-Identifier: Apache-2.0
// SpareWarmUp: what a process that waits for a rank to replace makes ready meanwhile, so that the
// ranks that are left do not wait for it later: the libraries of a GPU and NCCL, and then contexts
// on the GPUs and cuBLASLt's tables on the one that it would have as the first rank of its node.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "config/config.h"

namespace trireme::train {

class SpareWarmUp {
 public:
  struct Options {
    // Ranks take their memory first: a context takes half a gigabyte of each GPU.
    double wait_seconds = 10;
  };
  // Starts a thread, which does nothing if the run is on a CPU. What cannot be used is reported by
  // the rank that needs it, not here.
  explicit SpareWarmUp(const config::System& system) : SpareWarmUp(system, Options()) {}
  SpareWarmUp(const config::System& system, const Options& options);
  // Waits for what has begun; begins nothing more.
  ~SpareWarmUp();
  SpareWarmUp(const SpareWarmUp&) = delete;
  SpareWarmUp& operator=(const SpareWarmUp&) = delete;

 private:
  void warm_up(const config::System& system, const Options& options);

  std::mutex mutex_;  // guards is_over_
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace trireme::train
