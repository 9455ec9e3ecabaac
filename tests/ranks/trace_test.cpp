// SPDX-License-Identifier: Apache-2.0
// Every collective and message of a step is recorded on its stream: the recorded calls are those
// that the communicators have counted, on every rank of every kind of layout.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <tuple>

#include "device/cpu/cpu_device.h"
#include "kernels/table.h"
#include "tests/ranks/ranks_rig.h"
#include "train/trace/rank_trace.h"
#include "train/trace/stream_timeline.h"

namespace trireme::tests {
namespace {

using device::StreamMode;
using Kind = train::TraceSpan::Kind;
// Group, op, sequence, bytes and peer.
using CallKey = std::tuple<std::string, std::string, int64_t, int64_t, int>;
using Calls = std::map<CallKey, int>;

// Returns the calls that the flight recorder has from `first` on, without those of the host.
Calls counted_calls(const comm::FlightRecorder& recorder, int64_t first) {
  Calls calls;
  for (const comm::FlightRecorder::Entry& entry : recorder.entries()) {
    if (entry.record_id < first || entry.op == "barrier" || entry.op == "split") continue;
    ++calls[{entry.group, entry.op, entry.sequence, entry.bytes, entry.peer}];
  }
  return calls;
}

Calls recorded_calls(const train::RankTrace& trace) {
  Calls calls;
  for (const train::TraceSpan& span : trace.spans) {
    if (span.kind != Kind::communication) continue;
    ++calls[{trace.text(span.group), trace.text(span.name), span.sequence, span.bytes, span.peer}];
  }
  return calls;
}

// Expects that spans of a stream follow one another or are nested.
void expect_ordered(const train::RankTrace& trace) {
  std::map<std::pair<int32_t, int>, int64_t> ends;  // by stream and depth
  for (const train::TraceSpan& span : trace.spans) {
    EXPECT_LE(span.begin_ns, span.end_ns);
    int64_t& end = ends[{span.stream, span.depth}];
    EXPECT_GE(span.begin_ns, end) << trace.text(span.name) << " on stream "
                                  << trace.streams[static_cast<size_t>(span.stream)];
    end = span.end_ns;
    if (span.depth == 0) continue;
    EXPECT_LE(span.end_ns, (ends[{span.stream, span.depth - 1}]));
  }
}

// Records two steps of a layout on every rank.
std::vector<train::RankTrace> record(const Layout& layout) {
  const int ranks = ranks_of(layout);
  comm::ThreadWorld world(ranks, 60);
  std::vector<train::RankTrace> traces(static_cast<size_t>(ranks));
  comm::run_ranks(world, [&](int rank) {
    device::CpuDevice device(kernels::cpu_kernels(), {.streams = layout.streams});
    const auto communicator = world.communicator(rank, {.name = "world"});
    run_rank(layout, *communicator, device, [&](RankRig& rig) {
      rig.engine.step(rig.source, 1e-3);
      train::StreamTimeline timeline(rig.engine.streams());
      timeline.drain();
      const auto before = world.recorder(rank).entries();
      const int64_t first = before.empty() ? 0 : before.back().record_id + 1;
      for (const int64_t step : {2, 3}) {
        rig.next_step();
        communicator->barrier();
        timeline.start(step);
        rig.engine.step(rig.source, 1e-3);
        timeline.finish();
      }
      const train::RankTrace trace =
          train::unpacked(train::packed(train::rank_trace(rank, rig.engine.plan().mesh, timeline)));
      EXPECT_EQ(recorded_calls(trace), counted_calls(world.recorder(rank), first));
      expect_ordered(trace);
      traces[static_cast<size_t>(rank)] = trace;
    });
  });
  return traces;
}

Layout small(Layout layout, StreamMode streams) {
  layout.streams = streams;
  layout.logical_dp = layout.dp * layout.zero;
  layout.seq_len = 8;
  return layout;
}

TEST(TraceRanks, every_call_that_was_counted_is_recorded) {
  const spec::ModelDims llama = tiny_llama(), moe = tiny_moe();
  const std::vector<Layout> layouts = {
      {.dims = llama, .dp = 2},
      {.dims = llama, .zero = 2, .stage = 3},
      {.dims = llama, .tp = 2, .sequence_parallel = true},
      {.dims = llama, .pp = 2, .microbatches = 2},
      {.dims = llama, .cp = 2},
      {.dims = llama, .cp = 2, .context_kind = spec::ContextKind::ring},
      {.dims = moe, .zero = 2, .stage = 1, .ep = 2},
      {.dims = llama, .zero = 2, .stage = 1, .tp = 2, .pp = 2, .microbatches = 2}};
  for (const StreamMode streams : {StreamMode::inline_calls, StreamMode::worker_threads}) {
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(to_string(layout));
      const std::vector<train::RankTrace> traces = record(small(layout, streams));
      for (const train::RankTrace& trace : traces) {
        EXPECT_FALSE(recorded_calls(trace).empty());
        EXPECT_EQ(trace.steps.size(), 2U);
      }
    }
  }
}

TEST(TraceRanks, compute_waits_for_calls_that_run_inline_on_other_streams) {
  const std::vector<train::RankTrace> traces =
      record(small({.dims = tiny_llama(), .zero = 2, .stage = 3}, StreamMode::inline_calls));
  for (const train::RankTrace& trace : traces) {
    double called = 0, waited = 0;
    for (const train::TraceSpan& span : trace.spans) {
      const double seconds = 1e-9 * static_cast<double>(span.end_ns - span.begin_ns);
      const bool is_on_compute = span.stream == 0;
      if (span.kind == Kind::communication && !is_on_compute) called += seconds;
      if (span.kind == Kind::wait && is_on_compute) {
        waited += seconds;
        EXPECT_EQ(trace.text(span.name), "wait for dp");
      }
    }
    EXPECT_GT(called, 0);
    // Waits below a microsecond are not kept.
    EXPECT_LE(waited, called + 1e-9);
    EXPECT_GE(waited, called - 1e-6 * static_cast<double>(trace.spans.size()));
  }
}

TEST(TraceRanks, names_list_the_axes_with_several_ranks) {
  const std::vector<train::RankTrace> traces = record(
      small({.dims = tiny_llama(), .tp = 2, .pp = 2, .microbatches = 2}, StreamMode::inline_calls));
  EXPECT_EQ(traces[0].name, "rank 0 (pp 0 tp 0)");
  EXPECT_EQ(traces[3].name, "rank 3 (pp 1 tp 1)");
  EXPECT_EQ(traces[3].streams.front(), "compute");
  EXPECT_EQ(traces[3].streams.back(), "copy");
}

}  // namespace
}  // namespace trireme::tests
