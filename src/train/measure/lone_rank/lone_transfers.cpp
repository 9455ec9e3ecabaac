// SPDX-License-Identifier: Apache-2.0
#include "train/measure/lone_rank/lone_transfers.h"

#include "train/trace/collective_times.h"
#include "train/trace/rank_trace.h"
#include "train/trace/stream_timeline.h"

namespace trireme::train {
namespace {

constexpr int32_t compute_index = 0;  // in Engine::streams()

RankTrace traced_steps(engine::Engine& engine, engine::MicrobatchSource& source, int64_t steps) {
  StreamTimeline timeline(engine.streams());
  for (int64_t step = 1; step <= steps; ++step) {
    timeline.start(step);
    engine.step(source, 3e-4);
    timeline.finish();
  }
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
  return found;
}

}  // namespace trireme::train
