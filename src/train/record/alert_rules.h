// SPDX-License-Identifier: Apache-2.0
// AlertRules: when a run needs attention. Each rule reports once when it becomes true, and again
// only after it was false. Pure: it receives what happens, with the time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "config/config.h"
#include "train/record/run_prediction.h"

namespace trireme::train {

struct Alert {
  std::string rule;  // "skipped_steps"
  std::string text;  // human-readable, one line
};

class AlertRules {
 public:
  // `now`: seconds since 1970 when the attempt begins. `saves`: the run saves checkpoints.
  AlertRules(const config::Alerts&, const RunPrediction&, bool saves, double now);

  // A step has ended: are too many of the last steps skipped?
  std::optional<Alert> add_step(int64_t step, bool was_skipped);
  // A step was logged, with the mean seconds of a step: is it slower than the prediction's band?
  std::optional<Alert> add_log(int64_t step, double step_seconds);
  void saved(double now);
  // Is there a recent checkpoint to return to?
  std::optional<Alert> look(double now);

 private:
  const config::Alerts config_;
  const double max_step_seconds_;  // 0: no time is predicted
  const double predicted_seconds_;
  const bool saves_;
  std::deque<bool> skips_;  // of the last steps
  int64_t skipped_ = 0, slow_logs_ = 0;
  double saved_at_;
  bool has_skips_ = false, is_slow_ = false, is_unsaved_ = false;
};

}  // namespace trireme::train
