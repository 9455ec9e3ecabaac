// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object a line, {"step":10,"time":1700000000.25,"loss":4.7,...}, written
// as soon as the step is done. A value that is not finite is written as null. Lines that cannot be
// written are dropped with a warning (report_file.h).
#pragma once

#include <filesystem>

#include "obs/clock.h"
#include "obs/metric_sink.h"
#include "obs/report_file.h"

namespace trireme::obs {

class JsonlSink final : public MetricSink {
 public:
  // Appends to a file that is there; what a killed process left of a line is cut off first.
  explicit JsonlSink(const std::filesystem::path& path, Clock wall_clock = wall_seconds);
  // REQUIRES: no metric is called "step" or "time", and no name comes twice.
  void step(int64_t step, std::span<const Metric> metrics) override;
  int64_t dropped() const { return file_.dropped(); }  // lines

 private:
  Clock wall_clock_;
  ReportFile file_;
};

}  // namespace trireme::obs
