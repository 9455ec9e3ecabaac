// SPDX-License-Identifier: Apache-2.0
// MetricSink: where the numbers of a training step go. Files are written by its implementations;
// a sink is used by one thread at a time.
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

// An attempt of a run, as its metrics begin.
struct AttemptStart {
  std::string name;  // of the run
  base::ProgramId program;
  // The step of the checkpoint from which it continues: what was logged after it is of a past that
  // did not happen. -1: it continues none.
  int64_t resumed_from = -1;
};

class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual void begin(const AttemptStart& start) = 0;
  // `kind` tells what the numbers are of: "train", "validation", "checkpoint", "export".
  // Numbers that cannot
  // be stored are dropped with a warning: what only reports ends no run.
  virtual void step(std::string_view kind, int64_t step, std::span<const Metric> metrics) = 0;
};

}  // namespace trireme::obs
