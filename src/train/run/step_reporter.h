// SPDX-License-Identifier: Apache-2.0
// StepReporter: log lines, metrics and summary figures of the steps and validations of an attempt.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "train/batches/batches.h"
#include "train/batches/data_watch.h"
#include "train/report/run_output.h"
#include "train/report/skip_log.h"
#include "train/report/step_clock.h"
#include "train/report/step_metrics.h"
#include "train/report/train_summary.h"
#include "train/run/incarnation.h"
#include "train/run/state/timeline.h"

namespace trireme::train {

class StepReporter {
 public:
  struct Context {
    Incarnation& parts;
    StepClock& clock;
    TrainSummary& summary;
    RunOutput* output = nullptr;  // on the first rank; null on others
    std::function<void(const std::string&)> log;
  };
  // All references must outlive it.
  StepReporter(const Context&, const Timeline&);

  // `data_seconds`: for which steps of this attempt have waited for batches so far. REQUIRES: the
  // clock has waited for the step. Throws Error if ranks did not consume the samples of the step,
  // or too many steps in a row were skipped; IoError if the data has changed.
  // `batches` filled the step. Collective with several data sets.
  void log_step(int64_t step, double data_seconds, const TrainBatches& batches);
  // Throws IoError if the run's data has changed since its start: called before the step is saved.
  void check_data() { data_watch_.check(); }
  // Validates after a step. Collective.
  void log_validation(int64_t step);

 private:
  void log_source_losses(int64_t step, const TrainBatches& batches);
  void log_experts(int64_t step);  // collective
  StepFigures figures_of(int64_t step, const engine::StepReport&, double data_seconds);

  const Context to_;
  const Timeline& timeline_;
  DataWatch data_watch_;
  SkipLog skips_;
  int64_t logged_step_;
  double logged_data_seconds_ = 0;
};

}  // namespace trireme::train
