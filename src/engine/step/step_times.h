// SPDX-License-Identifier: Apache-2.0
// StepTimes: where the compute stream of this rank spent the time of steps, and StepTimer, which
// measures it without waiting. Every step has a timed event where it begins and where it ends. The
// time between two steps is the gap; in steps whose waits are measured, the time within a step is
// either in a span of the WaitWatch or compute. So the classes sum to the time from the end of one
// step to the end of the next, on one clock.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "device/device.h"
#include "device/wait_watch.h"

namespace trireme::engine {

using device::Wait;
using WaitSeconds = std::array<double, static_cast<size_t>(Wait::count)>;

struct StepTimes {
  int64_t steps = 0;
  int64_t measured_steps = 0;  // those whose waits were measured
  double seconds = 0;          // of all these steps, from end to end
  double max_seconds = 0;      // the longest
  // seconds = compute + gap + the sum of waits. If waits were measured in some of the steps only,
  // compute and waits of the others are divided as in those; without any, all is compute.
  double compute = 0;
  double gap = 0;  // no work was queued: between the end of a step and the next one's begin
  WaitSeconds wait{};
};

class StepTimer {
 public:
  explicit StepTimer(device::Stream& compute) : compute_(compute), watch_(compute) {}

  device::WaitWatch& watch() { return watch_; }
  // Off: steps that begin later are not timed at all.
  void set_on(bool on) { is_on_ = on; }
  // Measures the waits of the steps that begin later, or only their begin and end.
  void measure_waits(bool on) { measures_waits_ = on; }
  bool measures_waits() const { return measures_waits_; }

  void begin();  // the host queues a step's work after this
  void end();
  // The time until the next step's begin belongs to no step: something else uses the stream.
  void interrupt();

  // Returns the times of the steps that the stream has completed since the last call, without the
  // engine's first one, in which libraries choose algorithms.
  StepTimes take();
  // Returns how long the last step waited; none if it is not complete or its waits were not
  // measured.
  std::optional<double> last_wait(Wait wait);

 private:
  struct Marks {
    device::Event begin, end;
    bool has_waits = false, follows_step = false;
    std::vector<device::WaitWatch::Span> spans;
  };
  void collect();  // adds up completed steps
  void add(const Marks&);
  void recycle(Marks&);

  device::Stream& compute_;
  device::WaitWatch watch_;
  bool is_on_ = true, measures_waits_ = false, is_open_ = false, is_interrupted_ = true,
       is_first_ = true;
  bool is_last_timed_ = false;  // the last step that began
  std::deque<Marks> marks_;     // of steps that are queued; the last one may be open
  std::vector<Marks> free_;     // with memory for spans
  device::Event last_end_;      // of the last step that was added up
  StepTimes sums_;              // of all steps; compute is that of measured ones
  double measured_busy_ = 0;    // from begin to end, of steps whose waits were measured
  std::optional<WaitSeconds> last_waits_;
};

}  // namespace trireme::engine
