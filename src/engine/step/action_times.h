// SPDX-License-Identifier: Apache-2.0
// ActionTimes: when the actions of one step ran on the device. A stretch of compute begins when its
// inputs are there; a receive ends when its message is.
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
  // `actions` of the rank's program.
  ActionTimes(device::Stream& compute, size_t actions) : compute_(compute), marks_(actions) {}

  void start();  // waits until the stream is empty
  void begin(size_t action) { marks_[action].begin = compute_.record_timed(); }
  void end(size_t action) { end(action, compute_); }
  void end(size_t action, device::Stream& on) { marks_[action].end = on.record_timed(); }
  // By action; both 0 where nothing ran. Waits for the stream.
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
