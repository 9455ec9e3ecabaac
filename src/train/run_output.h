// SPDX-License-Identifier: Apache-2.0
// What a run leaves behind: its folder with configuration, plan, metrics and weights. One rank of a
// run has one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "config/config.h"
#include "obs/metric_sink.h"
#include "obs/run_dir.h"
#include "spec/plan.h"
#include "train/checkpointer.h"
#include "train/saver.h"

namespace trireme::train {

class RunOutput {
 public:
  // Opens the folder and writes configuration and plan. Throws IoError.
  RunOutput(const config::Config&, obs::RunMode, const spec::Plan&);

  const std::filesystem::path& folder() const { return folder_.path(); }
  const Saver& saver() const { return saver_; }
  void add(int64_t step, std::span<const obs::Metric> metrics);
  // At the step that was saved, which is before the step that runs.
  void add(const SavedGeneration&);

 private:
  obs::RunDir folder_;
  Saver saver_;
  std::vector<std::unique_ptr<obs::MetricSink>> sinks_;
};

}  // namespace trireme::train
