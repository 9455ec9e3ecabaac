// SPDX-License-Identifier: Apache-2.0
// Names of causes and states in files, JSON and messages.
#include <array>

#include "analysis/diagnosis.h"
#include "analysis/run_record.h"

namespace trireme::analysis {

std::string_view name_of(Cause cause) {
  static constexpr std::array<std::string_view, static_cast<size_t>(Cause::count)> names = {
      "slow_rank",
      "slow_link",
      "stage_imbalance",
      "data_starvation",
      "host_pauses",
      "throttled_clock",
      "needless_recompute",
      "memory_near_limit",
      "dead_rank",
      "slow_save",
      "stale_machine_file",
      "drifting_numbers",
      "diverged",
      "skipped_steps",
      "unsaved_steps",
      "missing_weights",
      "reported_error",
      "earlier_failures",
      "unknown"};
  return names.at(static_cast<size_t>(cause));
}

std::string_view name_of(OutcomeKind kind) {
  static constexpr std::array<std::string_view, static_cast<size_t>(OutcomeKind::count)> names = {
      "unknown", "running",  "healthy", "too_short", "stopped",
      "unsaved", "diverged", "failed",  "died"};
  return names.at(static_cast<size_t>(kind));
}

std::string_view name_of(Severity severity) {
  static constexpr std::array<std::string_view, 4> names = {"off", "good", "warning", "bad"};
  return names.at(static_cast<size_t>(severity));
}

std::string_view name_of(RunState state) {
  static constexpr std::array<std::string_view, 7> names = {
      "running", "done", "stopped", "diverged", "failed", "died", "unknown"};
  return names.at(static_cast<size_t>(state));
}

}  // namespace trireme::analysis
