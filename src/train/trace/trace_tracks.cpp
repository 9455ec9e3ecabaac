// SPDX-License-Identifier: Apache-2.0
#include "train/trace/trace_tracks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace trireme::train {
namespace {

constexpr int64_t gap_ns = 1;

// The spans of one step: they follow one another.
std::pair<size_t, size_t> spans_of(const RankTrace& trace, int64_t step) {
  const auto begin = std::ranges::lower_bound(trace.spans, step, {}, &TraceSpan::step);
  const auto end = std::ranges::upper_bound(trace.spans, step, {}, &TraceSpan::step);
  return {static_cast<size_t>(begin - trace.spans.begin()),
          static_cast<size_t>(end - trace.spans.begin())};
}

// Adds the slices of one step, inside of one slice for the step.
void add_step(Track& track, int64_t step, const std::vector<Slice>& slices) {
  if (slices.empty()) return;
  Slice around{.name = fmt::format("step {}", step),
               .category = "step",
               .begin_ns = slices.front().begin_ns,
               .end_ns = slices.front().end_ns};
  for (const Slice& slice : slices) around.end_ns = std::max(around.end_ns, slice.end_ns);
  track.slices.push_back(around);
  for (Slice slice : slices) {
    ++slice.depth;
    track.slices.push_back(std::move(slice));
  }
}

Track host_of(const RankTrace& trace, int64_t shift) {
  Track track{trace.rank, host_track, "host", {}};
  for (const TracedStep& step : trace.steps) {
    std::vector<size_t> queued;
    const auto [first, last] = spans_of(trace, step.step);
    for (size_t i = first; i < last; ++i) {
      if (trace.spans[i].is_queued) queued.push_back(i);
    }
    std::ranges::stable_sort(queued, {}, [&](size_t i) {
      return std::tuple(trace.spans[i].queue_begin_ns, trace.spans[i].host_depth);
    });
    std::vector<Slice> slices;
    for (const size_t i : queued) {
      const TraceSpan& span = trace.spans[i];
      slices.push_back({.name = "queue " + trace.text(span.name),
                        .category = "host",
                        .depth = span.host_depth,
                        .begin_ns = span.queue_begin_ns + shift,
                        .end_ns = span.queue_end_ns + shift,
                        .span = static_cast<int64_t>(i)});
    }
    add_step(track, step.step, slices);
    if (slices.empty()) continue;
    track.slices.push_back({.name = "wait after the step",
                            .category = "host",
                            .begin_ns = slices.back().end_ns,
                            .end_ns = step.end_ns + shift});
  }
  return track;
}

}  // namespace

void nest(std::vector<Slice>& slices) {
  // By depth: the earliest begin of the next slice, and the end of the slice around it.
  std::vector<int64_t> free_from = {0}, limit = {std::numeric_limits<int64_t>::max()};
  for (Slice& slice : slices) {
    const auto depth = std::min(static_cast<size_t>(slice.depth), free_from.size() - 1);
    slice.depth = static_cast<int>(depth);
    free_from.resize(depth + 1);
    limit.resize(depth + 1);
    slice.begin_ns = std::min(std::max(slice.begin_ns, free_from[depth]), limit[depth]);
    slice.end_ns = std::max(slice.begin_ns, std::min(slice.end_ns, limit[depth]) - gap_ns);
    free_from[depth] = slice.end_ns + gap_ns;
    free_from.push_back(slice.begin_ns);
    limit.push_back(slice.end_ns);
  }
}

std::vector<Track> tracks_of(const RankTrace& trace, const ClockOffset& offset, int64_t origin_ns) {
  const int64_t shift = offset.offset_ns - origin_ns;
  std::vector<Track> tracks;
  for (size_t stream = 0; stream < trace.streams.size(); ++stream) {
    Track& track = tracks.emplace_back(Track{trace.rank,
                                             track_of_stream(static_cast<int>(stream)),
                                             "stream " + trace.streams[stream],
                                             {}});
    for (const TracedStep& step : trace.steps) {
      std::vector<Slice> slices;
      const auto [first, last] = spans_of(trace, step.step);
      for (size_t i = first; i < last; ++i) {
        const TraceSpan& span = trace.spans[i];
        if (span.stream != static_cast<int32_t>(stream)) continue;
        slices.push_back({.name = trace.text(span.name),
                          .depth = span.depth,
                          .begin_ns = span.begin_ns + shift,
                          .end_ns = span.end_ns + shift,
                          .span = static_cast<int64_t>(i)});
      }
      add_step(track, step.step, slices);
    }
    nest(track.slices);
    if (stream > 0) continue;
    tracks.push_back(host_of(trace, shift));
    nest(tracks.back().slices);
  }
  return tracks;
}

}  // namespace trireme::train
