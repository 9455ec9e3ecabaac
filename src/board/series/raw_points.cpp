// SPDX-License-Identifier: Apache-2.0
#include "board/series/raw_points.h"

#include <fmt/format.h>

#include "board/series/buckets.h"
#include "board/series/line_scanner.h"
#include "board/series/line_tail.h"

namespace trireme::board {
namespace {

constexpr size_t text_block_bytes = 1 << 16;

}  // namespace

void write_raw(const std::filesystem::path& metrics, const RawQuery& query,
               const std::function<bool(std::string_view)>& write) {
  std::string out = "step,time,value\n";
  LineScanner scanner;
  const int tag = scanner.tag_of(query.tag);
  ScannedLine line;
  bool is_open = true;
  LineTail tail(metrics, {.max_line_bytes = MetricStore::max_line_bytes});
  tail.poll({.restarted = nullptr, .line = [&](std::string_view text) {
               if (!is_open) return;
               if (!scanner.scan(text, line) || !line.has_step) return;
               if (line.step < query.from || line.step > query.to) return;
               if (line.kind == "start" || line.kind == "resume") return;
               for (const ScannedValue& value : line.values) {
                 if (value.tag != tag) continue;
                 fmt::format_to(std::back_inserter(out), "{},{},{}\n", line.step, line.time_digits,
                                value.digits);
               }
               if (out.size() < text_block_bytes) return;
               is_open = write(out);
               out.clear();
             }});
  if (is_open) write(out);
}

std::string drawn_points_json(const MetricStore& store, int tag, const RawQuery& query) {
  const MetricTrack& track = store.track(tag);
  std::string steps, times, values;
  for (size_t i = 0; i < track.rows.size(); ++i) {
    const MetricRow& row = store.rows()[track.rows[i]];
    if (row.step < query.from || row.step > query.to) continue;
    if (!steps.empty()) {
      steps += ',';
      times += ',';
      values += ',';
    }
    append_number(steps, static_cast<double>(row.step));
    append_number(times, row.time);
    append_number(values, track.values[i]);
  }
  return fmt::format("{{\"step\":[{}],\"time\":[{}],\"value\":[{}]}}", steps, times, values);
}

}  // namespace trireme::board
