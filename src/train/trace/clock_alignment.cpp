// SPDX-License-Identifier: Apache-2.0
#include "train/trace/clock_alignment.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "base/check.h"

namespace trireme::train {
namespace {

int64_t at_share(std::vector<int64_t> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
}

int64_t median(const std::vector<int64_t>& values) { return at_share(values, 0.5); }

// The ends of one collective, by machine.
using Ends = std::map<std::string, std::vector<int64_t>>;

std::vector<Ends> shared_collectives(const std::vector<RankTrace>& traces) {
  // The same on all ranks of a group: op, group, ranks, sequence.
  using Key = std::tuple<std::string, std::string, std::string, int64_t>;
  std::map<Key, Ends> found;
  for (const RankTrace& trace : traces) {
    for (const TraceSpan& span : trace.spans) {
      const bool is_collective = span.kind == TraceSpan::Kind::communication && span.peer < 0;
      if (!is_collective) continue;
      found[{trace.text(span.name), trace.text(span.group), trace.text(span.ranks), span.sequence}]
           [trace.machine]
               .push_back(span.end_ns);
    }
  }
  std::vector<Ends> shared;
  for (auto& [key, ends] : found) {
    if (ends.size() > 1) shared.push_back(std::move(ends));
  }
  return shared;
}

// Returns what each collective gives for the offset of `machine`.
std::vector<int64_t> samples_of(const std::string& machine, const std::vector<Ends>& shared,
                                const std::map<std::string, ClockOffset>& aligned) {
  std::vector<int64_t> samples;
  for (const Ends& ends : shared) {
    const auto own = ends.find(machine);
    if (own == ends.end()) continue;
    std::vector<int64_t> others;
    for (const auto& [other, times] : ends) {
      const auto known = aligned.find(other);
      if (known == aligned.end()) continue;
      for (const int64_t time : times) others.push_back(time + known->second.offset_ns);
    }
    if (!others.empty()) samples.push_back(median(others) - median(own->second));
  }
  return samples;
}

ClockOffset from_barriers(const RankTrace& first, const RankTrace& other) {
  std::vector<int64_t> samples;
  for (size_t i = 0; i < std::min(first.steps.size(), other.steps.size()); ++i) {
    samples.push_back(first.steps[i].begin_ns - other.steps[i].begin_ns);
  }
  return {samples.empty() ? 0 : median(samples), std::nullopt, "barrier"};
}

}  // namespace

std::vector<ClockOffset> align_clocks(const std::vector<RankTrace>& traces) {
  TRIREME_CHECK(!traces.empty(), "no traces to align");
  std::map<std::string, ClockOffset> aligned = {{traces.front().machine, {0, 0, "host clock"}}};
  const std::vector<Ends> shared = shared_collectives(traces);
  for (bool has_found = true; has_found;) {
    has_found = false;
    for (const RankTrace& trace : traces) {
      if (aligned.contains(trace.machine)) continue;
      const std::vector<int64_t> samples = samples_of(trace.machine, shared, aligned);
      if (samples.empty()) continue;
      const int64_t error = (at_share(samples, 0.9) - at_share(samples, 0.1)) / 2;
      aligned[trace.machine] = {median(samples), error, "ends of collectives"};
      has_found = true;
    }
  }
  std::vector<ClockOffset> offsets;
  const auto error_of = [](const RankTrace& trace) {
    return std::llround(1e9 * trace.clock_error_seconds);
  };
  for (const RankTrace& trace : traces) {
    if (!aligned.contains(trace.machine)) {
      aligned[trace.machine] = from_barriers(traces.front(), trace);
    }
    ClockOffset offset = aligned[trace.machine];
    if (offset.error_ns && &trace != &traces.front()) {
      *offset.error_ns += error_of(trace) + error_of(traces.front());
    }
    offsets.push_back(offset);
  }
  return offsets;
}

}  // namespace trireme::train
