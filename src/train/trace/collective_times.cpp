// SPDX-License-Identifier: Apache-2.0
#include "train/trace/collective_times.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/text/json.h"

namespace trireme::train {
namespace {

constexpr int32_t compute_stream = 0;  // its index

// Spans in which ops ran on compute, in order and apart.
using Busy = std::vector<std::pair<int64_t, int64_t>>;

Busy busy_spans(const RankTrace& trace) {
  Busy busy;
  for (const TraceSpan& span : trace.spans) {
    const bool works = span.kind == TraceSpan::Kind::op || span.kind == TraceSpan::Kind::copy;
    if (span.stream != compute_stream || span.depth > 0 || !works) continue;
    const int64_t begin = std::max(span.begin_ns, busy.empty() ? 0 : busy.back().second);
    if (span.end_ns > begin) busy.emplace_back(begin, span.end_ns);
  }
  return busy;
}

int64_t overlap(const Busy& busy, int64_t begin, int64_t end) {
  int64_t sum = 0;
  auto at = std::ranges::lower_bound(busy, begin, {}, &Busy::value_type::second);
  for (; at != busy.end() && at->first < end; ++at) {
    sum += std::max<int64_t>(0, std::min(at->second, end) - std::max(at->first, begin));
  }
  return sum;
}

}  // namespace

std::vector<CollectiveTime> collective_times(const std::vector<RankTrace>& traces) {
  std::map<std::tuple<int, std::string, std::string, std::string>, CollectiveTime> rows;
  for (const RankTrace& trace : traces) {
    const Busy busy = busy_spans(trace);
    for (const TraceSpan& span : trace.spans) {
      if (span.kind != TraceSpan::Kind::communication) continue;
      const std::string &group = trace.text(span.group), &op = trace.text(span.name),
                        &layer = trace.text(span.layer);
      CollectiveTime& row = rows[{trace.rank, group, op, layer}];
      row.rank = trace.rank;
      row.group = group;
      row.op = op;
      row.layer = layer;
      ++row.calls;
      row.bytes += span.bytes;
      const int64_t taken = span.end_ns - span.begin_ns;
      const int64_t hidden =
          span.stream == compute_stream ? 0 : overlap(busy, span.begin_ns, span.end_ns);
      row.seconds += 1e-9 * static_cast<double>(taken);
      row.exposed_seconds += 1e-9 * static_cast<double>(taken - hidden);
    }
  }
  std::vector<CollectiveTime> all;
  for (auto& [key, row] : rows) all.push_back(std::move(row));
  return all;
}

base::Json collectives_json(const std::vector<RankTrace>& traces) {
  base::Json steps = base::Json::array(), rows = base::Json::array();
  if (!traces.empty()) {
    for (const TracedStep& step : traces.front().steps) steps.push_back(step.step);
  }
  for (const CollectiveTime& row : collective_times(traces)) {
    rows.push_back({{"rank", row.rank},
                    {"group", row.group},
                    {"op", row.op},
                    {"layer", row.layer},
                    {"calls", row.calls},
                    {"seconds", row.seconds},
                    {"exposed_seconds", row.exposed_seconds},
                    {"bytes", row.bytes}});
  }
  return {{"steps", steps}, {"ranks", traces.size()}, {"rows", rows}};
}

}  // namespace trireme::train
