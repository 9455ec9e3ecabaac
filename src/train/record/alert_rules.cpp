// SPDX-License-Identifier: Apache-2.0
#include "train/record/alert_rules.h"

#include <fmt/format.h>

#include <utility>

namespace trireme::train {
namespace {

constexpr size_t skip_window = 100;

}  // namespace

AlertRules::AlertRules(const config::Alerts& config, const RunPrediction& prediction, bool saves,
                       double now)
    : config_(config),
      max_step_seconds_(prediction.has_time() ? prediction.seconds * (1 + prediction.band) : 0),
      predicted_seconds_(prediction.seconds),
      saves_(saves),
      saved_at_(now) {}

std::optional<Alert> AlertRules::add_step(int64_t step, bool was_skipped) {
  skips_.push_back(was_skipped);
  skipped_ += was_skipped ? 1 : 0;
  if (skips_.size() > skip_window) {
    skipped_ -= skips_.front() ? 1 : 0;
    skips_.pop_front();
  }
  const bool is_true = config_.skipped_steps > 0 && skipped_ >= config_.skipped_steps;
  if (!is_true || std::exchange(has_skips_, is_true)) {
    has_skips_ = is_true;
    return {};
  }
  return Alert{"skipped_steps",
               fmt::format("{} of the last {} steps were skipped, the last one at step {}; see "
                           "grad_norm, and lower optimizer.lr if it grows",
                           skipped_, skips_.size(), step)};
}

std::optional<Alert> AlertRules::add_log(int64_t step, double step_seconds) {
  if (max_step_seconds_ <= 0 || config_.slow_logs == 0) return {};
  slow_logs_ = step_seconds > max_step_seconds_ ? slow_logs_ + 1 : 0;
  const bool is_true = slow_logs_ >= config_.slow_logs;
  if (!is_true || std::exchange(is_slow_, is_true)) {
    is_slow_ = is_true;
    return {};
  }
  return Alert{
      "slow_steps",
      fmt::format("{} log lines in a row until step {} were slower than predicted: {:.4g} s "
                  "a step, predicted are {:.4g} s, at most {:.4g} s; `trireme diagnose` "
                  "lists causes",
                  slow_logs_, step, step_seconds, predicted_seconds_, max_step_seconds_)};
}

void AlertRules::saved(double now) {
  saved_at_ = now;
  is_unsaved_ = false;
}

std::optional<Alert> AlertRules::look(double now) {
  const double age = now - saved_at_;
  if (!saves_ || config_.max_unsaved_seconds <= 0 || age < config_.max_unsaved_seconds) return {};
  if (std::exchange(is_unsaved_, true)) return {};
  return Alert{"no_rollback_target",
               fmt::format("no checkpoint has become durable for {:.0f} s (alerts."
                           "max_unsaved_seconds = {:g}): a failure loses that time",
                           age, config_.max_unsaved_seconds)};
}

}  // namespace trireme::train
