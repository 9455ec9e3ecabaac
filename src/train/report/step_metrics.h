// SPDX-License-Identifier: Apache-2.0
// The figures of a logged step, first as data, then as log line and metrics.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "obs/sinks/metric_sink.h"
#include "obs/terminal/console.h"
#include "spec/plan.h"

namespace trireme::train {

struct StepFigures {
  int64_t step = 0;
  engine::StepReport report;
  int64_t total_tokens = 0;  // of the run, earlier attempts included
  double tokens_per_second = 0;
  double step_seconds = 0, data_seconds = 0;  // per step since the logged step before
  double tflops = 0;                          // by the formula of throughput.h
  double epoch = 0;                           // samples consumed over samples of an epoch
  int64_t memory_bytes = 0;
  std::optional<double> memory_fraction;  // of the device; none: its size is not known
  std::optional<double> mfu, hfu;         // none: the peak is not known
  int64_t newly_skipped = 0;              // steps since the logged step before
  // Context parallelism; none without it, or if they were not measured.
  std::optional<double> pairs_max_over_mean, transfer_seconds;
  std::optional<double> row_transfer_seconds;  // of experts; the same
};

obs::StepLine step_line_of(const StepFigures&);
std::vector<obs::Metric> step_metrics(const StepFigures&);

}  // namespace trireme::train
