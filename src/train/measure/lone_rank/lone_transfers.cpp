// SPDX-License-Identifier: Apache-2.0
#include "train/measure/lone_rank/lone_transfers.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "obs/clock.h"
#include "train/measure/step_bench.h"
#include "train/trace/collective_times.h"
#include "train/trace/rank_trace.h"
#include "train/trace/stream_timeline.h"

namespace trireme::train {
namespace {

constexpr int32_t compute_index = 0;  // in Engine::streams()
constexpr double learning_rate = 3e-4;

// Keeps all streams of a device from running what the host queues, until it has queued a step. A
// step that is not captured could otherwise be slower on the host than on the device, and an op
// would seem to last until the host has queued the next one.
class HeadStart {
 public:
  // Nothing is needed on a device that cannot capture: it computes on the host's cores.
  explicit HeadStart(engine::Engine& engine) : engine_(engine) {
    device::Stream& compute = engine.compute();
    const device::Tensor memory = compute.workspace();
    const int64_t half = memory.bytes() / 2;
    if (half == 0) return;
    compute.synchronize();
    work_ = compute.capture([&] {
      for (int i = 0; i < copies; ++i) {
        compute.copy_bytes(memory.slice_rows(0, half), memory.slice_rows(half, half));
      }
    });
    if (!work_) return;
    compute.launch(*work_);  // not timed: the first launch prepares
    const device::Event begin = compute.record_timed();
    compute.launch(*work_);
    const device::Event end = compute.record_timed();
    compute.synchronize();
    work_seconds_ = compute.seconds_between(begin, end);
  }

  // Later work of all streams starts after `seconds` or more.
  void give(double seconds) {
    if (!work_) return;
    device::Stream& compute = engine_.compute();
    const auto launches = static_cast<int>(std::ceil(seconds / work_seconds_));
    for (int i = 0; i < launches; ++i) compute.launch(*work_);
    const device::Event end = compute.record();
    for (device::Stream* stream : engine_.streams()) {
      if (stream != &compute) stream->wait(end);
    }
  }

 private:
  static constexpr int copies = 256;

  engine::Engine& engine_;
  std::unique_ptr<device::Graph> work_;
  double work_seconds_ = 0;
};

RankTrace traced_steps(engine::Engine& engine, engine::MicrobatchSource& source, int64_t steps) {
  HeadStart head_start(engine);
  double host_seconds = 0;
  const auto run = [&](StreamTimeline& timeline, int64_t step) {
    timeline.start(step);
    head_start.give(1.5 * host_seconds);
    const double begin = obs::steady_seconds();
    engine.step(source, learning_rate);
    host_seconds = std::max(host_seconds, obs::steady_seconds() - begin);
    timeline.finish();
  };
  {
    StreamTimeline unused(engine.streams());  // shows how long the host takes
    run(unused, 0);
  }
  StreamTimeline timeline(engine.streams());
  for (int64_t step = 1; step <= steps; ++step) run(timeline, step);
  return rank_trace(0, engine.plan().mesh, timeline);
}

double op_seconds(const RankTrace& trace) {
  double sum = 0;
  for (const TraceSpan& span : trace.spans) {
    if (span.kind != TraceSpan::Kind::op || span.stream != compute_index) continue;
    sum += 1e-9 * static_cast<double>(span.end_ns - span.begin_ns);
  }
  return sum;
}

}  // namespace

LoneTransfers measure_transfers(engine::Engine& engine, engine::MicrobatchSource& source,
                                LoneRank& rank, int64_t steps) {
  const auto per_step = 1.0 / static_cast<double>(steps);
  LoneTransfers found;
  const RankTrace with = traced_steps(engine, source, steps);
  for (const CollectiveTime& time : collective_times({with})) {
    found.seconds += per_step * time.seconds;
    found.exposed_seconds += per_step * time.exposed_seconds;
  }
  found.op_seconds = per_step * op_seconds(with);
  rank.stop_transfers();
  found.op_seconds_alone = per_step * op_seconds(traced_steps(engine, source, steps));
  engine.capture_again();
  for (int i = 0; i < 2; ++i) engine.step(source, learning_rate);
  const std::vector<double> alone = step_seconds(engine, source, 2 * steps + 1);
  found.step_seconds_alone = alone[alone.size() / 2];
  return found;
}

}  // namespace trireme::train
