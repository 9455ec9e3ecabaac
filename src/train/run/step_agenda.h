// SPDX-License-Identifier: Apache-2.0
// StepAgenda: what happens after each step of a run, as a pure function of the step and the
// requests that all ranks agreed on: which steps log, validate, save, export, and which is the
// last.
#pragma once

#include <cstdint>

#include "config/config.h"

namespace trireme::train {

// What was requested at a step. The same on all ranks.
struct StepRequests {
  bool stop = false, save = false;
  bool is_save_time = false;  // a save is due by the clock (RunCheckpoints::poll)
};

// What happens after a step, in this order.
struct StepActions {
  bool logs = false, validates = false, saves = false, exports = false;
  bool is_stopped = false;  // on request, before the run's last step
  bool is_last = false;     // of this attempt

  // Must the host wait for the device?
  bool waits() const { return logs || validates || exports; }
  bool operator==(const StepActions&) const = default;
};

class StepAgenda {
 public:
  // `first_step`: the first of this attempt, counted from 1. `has_validation`: there is held-out
  // data.
  StepAgenda(const config::Config&, int64_t first_step, bool has_validation);

  // True if ranks exchange requests after this step, independent of the clock: after the first and
  // the last one, and where a step may log, validate, save or export.
  bool exchanges_requests(int64_t step) const;
  // REQUIRES: `requests` is empty unless requests were exchanged after this step.
  StepActions actions(int64_t step, const StepRequests& requests) const;

 private:
  bool validates_at(int64_t step) const;

  int64_t first_step_, last_step_;
  int64_t log_every_, validate_every_, save_every_, export_every_;  // steps; at most 0: never
  bool validates_, saves_, exports_;
};

// True if the run writes weights in Hugging Face form, besides checkpoints.
bool exports_weights(const config::Config&);

}  // namespace trireme::train
