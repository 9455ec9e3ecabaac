// SPDX-License-Identifier: Apache-2.0
// When each operation of an observed span ran on the device, and when the host queued it. Works on
// any stream; the host waits only at the two ends of the span.
#pragma once

#include <string>
#include <vector>

#include "kernels/ops.h"
#include "obs/clock.h"

namespace trireme::train {

// Seconds since the span began, on the device's and on the host's clock.
struct TimedOp {
  spec::OpCost cost;
  std::vector<std::string> ranges;        // the engine's nested ranges, outermost first
  double begin = 0, end = 0;              // on the device: until the next operation began
  double queue_begin = 0, queue_end = 0;  // on the host: until the next one was queued

  double seconds() const { return end - begin; }
};

class OpTimeline final : public kernels::OpObserver {
 public:
  explicit OpTimeline(device::Stream& stream, obs::Clock clock = obs::steady_seconds)
      : stream_(stream), clock_(std::move(clock)) {}
  ~OpTimeline() override;
  OpTimeline(const OpTimeline&) = delete;
  OpTimeline& operator=(const OpTimeline&) = delete;

  // Waits until the stream is idle and observes it from then on. Observed steps are not captured.
  void start();
  // Stops, waits for the stream and returns the operations queued since start(), in order.
  std::vector<TimedOp> finish();

  double started_at() const { return started_at_; }    // by the host's clock
  double finished_at() const { return finished_at_; }  // when finish() had waited

  void op(const device::Stream& stream, const spec::OpCost& cost) override;

 private:
  struct Sent {
    spec::OpCost cost;
    std::vector<std::string> ranges;
    device::Event begin;
    double queued = 0;
  };

  device::Stream& stream_;
  obs::Clock clock_;
  device::Event origin_;
  double started_at_ = 0, finished_at_ = 0;
  std::vector<Sent> sent_;
};

// "gemm nt", "adamw".
std::string op_name(const spec::OpCost&);

// Counts the waits of the host for the device inside the span: places at which the host continued
// only after the device had caught up, although the device was behind when the previous operation
// was queued. A device that ran out of work cannot be distinguished from one that was waited for,
// and is not counted.
int host_waits(const std::vector<TimedOp>& ops);

}  // namespace trireme::train
