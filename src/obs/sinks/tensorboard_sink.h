// SPDX-License-Identifier: Apache-2.0
// Scalars for TensorBoard: <folder>/events.out.tfevents.<unix seconds>.<host>.<pid>.0, one event a
// step, tags as the metrics are called. The bytes are those of tfevents.h. Events that cannot be
// written are dropped with a warning (report_file.h).
#pragma once

#include <filesystem>

#include "obs/clock.h"
#include "obs/sinks/metric_sink.h"
#include "obs/report_file.h"

namespace trireme::obs {

class TensorboardSink final : public MetricSink {
 public:
  // Makes the folder if need be, and always a file of its own: TensorBoard joins the files of a
  // folder.
  explicit TensorboardSink(const std::filesystem::path& folder, Clock wall_clock = wall_seconds);
  // Where the run resumes, TensorBoard drops the events of older files from the next step on. The
  // name of a run is that of its folder there.
  void begin(const AttemptStart& start) override;
  void step(std::string_view kind, int64_t step, std::span<const Metric> metrics) override;
  int64_t dropped() const { return file_.dropped(); }  // events
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  Clock wall_clock_;
  ReportFile file_;
};

}  // namespace trireme::obs
