// SPDX-License-Identifier: Apache-2.0
// StepClock: times steps that the host queues without waiting, as spans between two waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/system/rank_activity.h"
#include "device/device.h"
#include "obs/clock.h"

namespace trireme::train {

class StepClock {
 public:
  // Call before a step is queued.
  void begin_step() {
    if (is_open_) return;
    begin_ = obs::steady_seconds();
    is_open_ = true;
  }
  void end_step() { ++steps_; }

  // Waits for the device and ends the span. Time until the next step is not counted.
  void wait(device::Stream& stream) {
    if (!is_open_) return;
    const base::ActivityPhaseScope activity(base::step_phase);
    stream.synchronize();
    seconds_ += obs::steady_seconds() - begin_;
    is_open_ = false;
  }

  // Excludes the steps since the last lap, which are not typical, from the median.
  void leave_out() { is_left_out_ = true; }
  // Returns seconds per step since the last lap. REQUIRES: wait() was called after at least one
  // step.
  double lap() {
    const double per_step = (seconds_ - lap_seconds_) / static_cast<double>(steps_ - lap_steps_);
    if (!is_left_out_) laps_.push_back(per_step);
    lap_seconds_ = seconds_;
    lap_steps_ = steps_;
    is_left_out_ = false;
    return per_step;
  }

  // A step was aborted: its time is not counted, nor are the steps since the last lap in the next.
  void abandon() {
    is_open_ = false;
    lap_seconds_ = seconds_;
    lap_steps_ = steps_;
  }

  // Steps from now on are of another size: the median is that of later laps.
  void forget_laps() { laps_.clear(); }

  double seconds() const { return seconds_; }  // of all spans
  // Returns the median of laps, in seconds per step; 0 without a lap.
  double median_lap() const {
    if (laps_.empty()) return 0;
    std::vector<double> laps = laps_;
    std::nth_element(laps.begin(), laps.begin() + static_cast<ptrdiff_t>(laps.size() / 2),
                     laps.end());
    return laps[laps.size() / 2];
  }

 private:
  double begin_ = 0, seconds_ = 0, lap_seconds_ = 0;
  int64_t steps_ = 0, lap_steps_ = 0;
  bool is_open_ = false, is_left_out_ = false;
  std::vector<double> laps_;
};

}  // namespace trireme::train
