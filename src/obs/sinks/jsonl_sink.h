// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object per line,
//   {"kind":"train","attempt":1,"step":10,"time":1700000000.25,"loss":4.7,...}
// written soon after the step is done. A value that is not finite is written as the string "NaN",
// "Infinity" or "-Infinity" (builds before wrote null). Nothing is ever removed: of lines with
// equal step and kind, only those of the last attempt are valid. Lines that cannot be written are
// dropped with a warning (report_file.h).
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "obs/clock.h"
#include "obs/report_file.h"
#include "obs/sinks/metric_sink.h"

namespace trireme::obs {

class JsonlSink final : public MetricSink {
 public:
  // Receives a copy of complete lines.
  using Copy = std::function<void(std::string_view)>;
  // Appends to an existing file, after removing an incomplete last line of a killed process.
  JsonlSink(const std::filesystem::path& path, int64_t attempt, Clock wall_clock = wall_seconds,
            Copy copy = {});
  // {"kind":"resume","attempt":2,"step":80,"time":...,"resumed_from":80}
  void begin(const AttemptStart& start) override;
  // REQUIRES: no metric is called "kind", "attempt", "step" or "time", and no name occurs twice.
  void step(std::string_view kind, int64_t step, std::span<const Metric> metrics) override;
  // Writes one line for each, in one piece.
  void steps(std::string_view kind, std::span<const TimedMetrics> steps);
  int64_t dropped() const { return file_.dropped(); }  // lines

 private:
  void add(std::string_view lines);

  const int64_t attempt_;
  Clock wall_clock_;
  Copy copy_;
  ReportFile file_;
};

}  // namespace trireme::obs
