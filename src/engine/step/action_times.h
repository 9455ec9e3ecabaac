// SPDX-License-Identifier: Apache-2.0
// ActionTimes: when the actions of one step ran on the device. A compute action begins when its
// inputs have arrived; a receive ends when its message has arrived.
#pragma once

#include <vector>

#include "device/device.h"

namespace trireme::engine {

// Seconds since start().
struct ActionSpan {
  double begin = 0, end = 0;
};

class ActionTimes {
 public:
  // `actions`: the number of actions in the rank's program.
  ActionTimes(device::Stream& compute, size_t actions) : compute_(compute), marks_(actions) {}

  void start();  // waits until the stream is empty
  void begin(size_t action) { marks_[action].begin = compute_.record_timed(); }
  void end(size_t action) { end(action, compute_); }
  void end(size_t action, device::Stream& on) { marks_[action].end = on.record_timed(); }
  // Returns the spans by action; both ends are 0 if the action ran no work. Waits for the stream.
  std::vector<ActionSpan> finish();

 private:
  struct Mark {
    device::Event begin, end;
  };
  device::Stream& compute_;
  device::Event origin_;
  std::vector<Mark> marks_;
};

}  // namespace trireme::engine
