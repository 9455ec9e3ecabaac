// SPDX-License-Identifier: Apache-2.0
#include "train/run/step_agenda.h"

namespace trireme::train {
namespace {

bool is_due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

}  // namespace

bool exports_weights(const config::Config& c) {
  return c.checkpoint.enable && !c.checkpoint.export_folder.empty();
}

StepAgenda::StepAgenda(const config::Config& c, int64_t first_step, bool has_validation)
    : first_step_(first_step),
      last_step_(c.training.steps),
      log_every_(c.metrics.log_freq),
      validate_every_(c.validation.freq),
      save_every_(c.checkpoint.interval),
      export_every_(c.checkpoint.export_interval),
      validates_(has_validation),
      saves_(c.checkpoint.enable),
      exports_(exports_weights(c)) {}

bool StepAgenda::validates_at(int64_t step) const {
  return validates_ && is_due(step, validate_every_);
}

bool StepAgenda::exchanges_requests(int64_t step) const {
  return step == first_step_ || step == last_step_ || is_due(step, log_every_) ||
         validates_at(step) ||
         (saves_ && (is_due(step, save_every_) || is_due(step, export_every_)));
}

StepActions StepAgenda::actions(int64_t step, const StepRequests& requests) const {
  StepActions actions;
  // A request that arrives with the last step changes nothing.
  actions.is_stopped = requests.stop && step < last_step_;
  actions.is_last = step == last_step_ || actions.is_stopped;
  actions.logs = step == first_step_ || actions.is_last || is_due(step, log_every_);
  // A stop saves at once: the time until the process is killed may be short.
  actions.validates =
      !actions.is_stopped && (validates_at(step) || (validates_ && actions.is_last));
  // The last weights are exported when the run finishes.
  actions.exports = exports_ && !actions.is_last && (requests.save || is_due(step, export_every_));
  actions.saves = saves_ && (actions.is_last || actions.exports || requests.save ||
                             requests.is_save_time || is_due(step, save_every_));
  return actions;
}

}  // namespace trireme::train
