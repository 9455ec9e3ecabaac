// SPDX-License-Identifier: Apache-2.0
// Names of causes and states in files, JSON and messages.
#include <array>

#include "analysis/diagnosis.h"
#include "analysis/run_record.h"

namespace trireme::analysis {

std::string_view name_of(Cause cause) {
  static constexpr std::array<std::string_view, static_cast<size_t>(Cause::count)> names = {
      "slow_rank",     "slow_link",       "stage_imbalance",    "data_starvation",
      "host_pauses",   "throttled_clock", "needless_recompute", "memory_near_limit",
      "dead_rank",     "slow_save",       "stale_machine_file", "drifting_numbers",
      "skipped_steps", "unsaved_steps",   "reported_error",     "unknown"};
  return names.at(static_cast<size_t>(cause));
}

std::string_view name_of(RunState state) {
  static constexpr std::array<std::string_view, 6> names = {"running", "done", "stopped",
                                                            "failed",  "died", "unknown"};
  return names.at(static_cast<size_t>(state));
}

}  // namespace trireme::analysis
