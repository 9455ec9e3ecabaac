// SPDX-License-Identifier: Apache-2.0
// What `trireme chaos` does to a run, and when: drawn from a seed, so that a history can be
// repeated.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace trireme::cli {

enum class DisturbanceKind : uint8_t {
  kill,    // SIGKILL of a rank
  pause,   // SIGSTOP, and SIGCONT before the rank counts as silent
  freeze,  // SIGSTOP for ever: the job must detect it
};
inline constexpr DisturbanceKind all_disturbance_kinds[] = {
    DisturbanceKind::kill, DisturbanceKind::pause, DisturbanceKind::freeze};
std::string_view name_of(DisturbanceKind);

struct Disturbance {
  int64_t number = 0;  // from 1
  DisturbanceKind kind = DisturbanceKind::kill;
  int rank = 0;
  int64_t after_step = 1;    // not before this step has finished
  double step_share = 0;     // and then so many steps later
  double pause_seconds = 0;  // of a pause

  bool operator==(const Disturbance&) const = default;
};

struct ScheduleOptions {
  uint64_t seed = 1;
  int64_t count = 1;
  int ranks = 1;
  int64_t steps = 1;  // of the run
  // Each as often as it is listed. REQUIRES: not empty.
  std::vector<DisturbanceKind> kinds;
  double detect_seconds = 5;  // elastic.detect_s: a pause is shorter than half of it
};
// Returns the disturbances in the order of their steps, spread over the run, with time to recover
// after the last one. The same on every machine. REQUIRES: count, ranks and steps are at least 1.
std::vector<Disturbance> draw_schedule(const ScheduleOptions&);

}  // namespace trireme::cli
