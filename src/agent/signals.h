// SPDX-License-Identifier: Apache-2.0
// SignalQueue: the signals that a launcher handles, as a descriptor for poll(): SIGINT, SIGTERM,
// SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU. One object at a time.
#pragma once

#include <atomic>
#include <csignal>
#include <vector>

#include "base/system/descriptor.h"

namespace trireme::agent {

class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int descriptor() const { return wake_up_.value(); }
  // Returns the signals that have come since the last call, each once.
  std::vector<int> take();

  // Whether a request to stop has ever come.
  static const std::atomic<bool>* stop();
  static sigset_t handled();
  // Those whose handlers end with this object: SIGHUP keeps what nohup has set.
  static sigset_t changed();

 private:
  const base::Descriptor wake_up_;
};

}  // namespace trireme::agent
