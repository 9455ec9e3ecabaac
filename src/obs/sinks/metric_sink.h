// SPDX-License-Identifier: Apache-2.0
// MetricSink: receives the metrics of training steps. Its implementations write files; only one
// thread at a time may use a sink.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/program_id.h"

namespace trireme::obs {

// `name` is also the tag in TensorBoard: "loss_metrics/global_avg_loss", "grad_norm", ...
struct Metric {
  std::string_view name;
  double value = 0;
};

// The start of an attempt of a run.
struct AttemptStart {
  std::string name;  // of the run
  base::ProgramId program;
  // The step of the checkpoint from which it resumes: metrics that were logged after that step are
  // obsolete. -1: it does not resume.
  int64_t resumed_from = -1;
};

// The metrics of one of several steps that are written together.
struct TimedMetrics {
  int64_t step = 0;
  double time = 0;  // seconds since 1970
  std::span<const Metric> metrics;
};

class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual void begin(const AttemptStart& start) = 0;
  // `kind` is what the metrics describe: "train", "validation", "checkpoint", "export". Metrics
  // that cannot be stored are dropped with a warning; they never end a run.
  virtual void step(std::string_view kind, int64_t step, std::span<const Metric> metrics) = 0;
};

}  // namespace trireme::obs
