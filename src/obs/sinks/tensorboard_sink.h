// SPDX-License-Identifier: Apache-2.0
// Scalars for TensorBoard: <folder>/events.out.tfevents.<unix seconds>.<host>.<pid>.0, one event
// per step; the tags are the names of the metrics. tfevents.h describes the format. Events that
// cannot be written are dropped with a warning (report_file.h).
#pragma once

#include <filesystem>

#include "obs/clock.h"
#include "obs/report_file.h"
#include "obs/sinks/metric_sink.h"

namespace trireme::obs {

class TensorboardSink final : public MetricSink {
 public:
  // Creates the folder if necessary, and always a new file: TensorBoard joins the files of a
  // folder.
  explicit TensorboardSink(const std::filesystem::path& folder, Clock wall_clock = wall_seconds);
  // If the run resumes, TensorBoard drops the events of older files from the next step on. It names
  // a run after its folder.
  void begin(const AttemptStart& start) override;
  void step(std::string_view kind, int64_t step, std::span<const Metric> metrics) override;
  int64_t dropped() const { return file_.dropped(); }  // events
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  Clock wall_clock_;
  ReportFile file_;
};

}  // namespace trireme::obs
