// SPDX-License-Identifier: Apache-2.0
// What `trireme chaos` does to a run, and when: drawn from a seed, so that a history can be
// repeated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::cli {

enum class DisturbanceKind : uint8_t {
  kill,        // SIGKILL of a rank
  pause,       // SIGSTOP, and SIGCONT before the rank counts as silent
  freeze,      // SIGSTOP for ever: the job must detect it
  supervisor,  // SIGKILL of a process of the launcher: ranks must not notice
  guardian,    // likewise
  spare        // SIGKILL of a spare: likewise
};
inline constexpr DisturbanceKind all_disturbance_kinds[] = {
    DisturbanceKind::kill,       DisturbanceKind::pause,    DisturbanceKind::freeze,
    DisturbanceKind::supervisor, DisturbanceKind::guardian, DisturbanceKind::spare};
std::string_view name_of(DisturbanceKind);
// Does it take a rank from the run, which has to recover?
constexpr bool loses_rank(DisturbanceKind kind) {
  return kind == DisturbanceKind::kill || kind == DisturbanceKind::freeze;
}
// Is it done to a rank, and not to a process that helps ranks?
constexpr bool is_of_rank(DisturbanceKind kind) {
  return loses_rank(kind) || kind == DisturbanceKind::pause;
}

struct Disturbance {
  int64_t number = 0;  // from 1
  DisturbanceKind kind = DisturbanceKind::kill;
  int rank = 0;              // without a meaning unless is_of_rank(kind)
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
  double detect_seconds = 5;  // elastic.detect_s: a pause is at most half of it
};
// Returns "kill of rank 3", "kill of the guardian".
std::string text_of(const Disturbance&);

// Returns the disturbances in the order of their steps, spread over the run, with time to recover
// after the last one. The same on every machine. REQUIRES: count, ranks and steps are at least 1.
std::vector<Disturbance> draw_schedule(const ScheduleOptions&);

}  // namespace trireme::cli
