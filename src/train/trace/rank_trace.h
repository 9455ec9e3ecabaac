// SPDX-License-Identifier: Apache-2.0
// RankTrace: the traced steps of one rank, in the form in which ranks send them to the first rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/parallel/axes.h"
#include "train/trace/stream_timeline.h"
#include "train/trace/trace_span.h"

namespace trireme::train {

struct RankTrace {
  int rank = 0;
  std::string name;     // "rank 3 (pp 1 tp 1)"
  std::string host;     // its name
  std::string machine;  // ranks with equal texts have the same host clock
  double clock_error_seconds = 0;
  int host_waits = 0;
  std::vector<std::string> streams;  // names, compute first
  std::vector<std::string> strings;
  std::vector<TracedStep> steps;
  std::vector<TraceSpan> spans;  // by step, and in each step by stream

  const std::string& text(int32_t index) const { return strings[static_cast<size_t>(index)]; }
};

// Returns what was recorded on this rank. The name lists the axes of `sizes` with several ranks.
RankTrace rank_trace(int rank, const spec::Sizes& sizes, const StreamTimeline&);

std::string packed(const RankTrace&);
// REQUIRES: the bytes are from packed() of the same program.
RankTrace unpacked(const std::string& bytes);

}  // namespace trireme::train
