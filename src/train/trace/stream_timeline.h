// SPDX-License-Identifier: Apache-2.0
// StreamTimeline: records everything that a rank queues on its streams in one step: ops, copies,
// communication and waits for other streams. The host waits only at the two ends of the step.
//
// An op lasts until the next entry of its stream begins, or until the host queues something on
// another stream. Calls contain the ops that are queued during them. On a device that runs work
// inline, a call on another stream keeps compute from running, which is recorded as a wait.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/call_observer.h"
#include "kernels/ops.h"
#include "obs/clock.h"
#include "train/trace/trace_span.h"

namespace trireme::train {

class StreamTimeline final : public kernels::OpObserver, public device::CallObserver {
 public:
  // `streams`: compute first. They must outlive it.
  explicit StreamTimeline(std::vector<device::Stream*> streams,
                          obs::Clock clock = obs::steady_seconds);
  ~StreamTimeline() override;
  StreamTimeline(const StreamTimeline&) = delete;
  StreamTimeline& operator=(const StreamTimeline&) = delete;

  void drain();  // waits until all streams are idle
  // Drains, and observes all streams from then on. Observed steps are not captured.
  void start(int64_t step);
  // Stops, drains and appends the step's spans to spans(): those of each stream in order.
  void finish();

  const std::vector<TraceSpan>& spans() const { return spans_; }
  const std::vector<TracedStep>& steps() const { return steps_; }
  const std::vector<std::string>& strings() const { return strings_.strings(); }
  std::vector<std::string> stream_names() const;
  // The host waited for the device so often inside steps (op_timeline.h: host_waits()).
  int host_waits() const { return host_waits_; }
  // By how much times of the device may differ from the host's clock.
  double clock_error_seconds() const { return clock_error_seconds_; }

  void op(const device::Stream&, const spec::OpCost&) override;
  void begins(device::Stream&, const device::StreamCall&) override;
  void ends(device::Stream&, const device::StreamCall&) override;

 private:
  struct Entry {
    TraceSpan span;
    device::Event begin, end;
  };
  int32_t index_of(const device::Stream&) const;
  device::Stream& stream(const TraceSpan& span) const {
    return *streams_[static_cast<size_t>(span.stream)];
  }
  int64_t now_ns() const;
  // Adds an entry that begins now on the stream, and ends the open op.
  Entry& add(int32_t stream);
  // Ends the open op, if there is one, at an event of its stream; null: now.
  void end_open_op(const device::Event* at);
  void name(TraceSpan&, const device::Stream&);  // layer and action, from the open ranges
  void set_origin();
  void stop();
  int count_host_waits(size_t first_span) const;

  std::vector<device::Stream*> streams_;
  obs::Clock clock_;
  StringTable strings_;
  std::vector<TraceSpan> spans_;
  std::vector<TracedStep> steps_;
  int host_waits_ = 0;
  double clock_error_seconds_ = 0;

  // ---- the step that is being recorded
  bool is_on_ = false;
  int64_t step_ = 0;
  device::Event origin_;
  double origin_seconds_ = 0, begin_seconds_ = 0;  // of the host's clock
  std::vector<Entry> entries_;
  std::optional<size_t> open_op_;   // has no end yet
  std::vector<size_t> open_calls_;  // innermost last
};

}  // namespace trireme::train
