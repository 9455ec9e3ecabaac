// SPDX-License-Identifier: Apache-2.0
#include "cli/chaos/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/check.h"

namespace trireme::cli {
namespace {

// In [0, 1). The distributions of the standard library differ from one library to another.
double uniform(std::mt19937_64& random) {
  constexpr int bits = 53;
  return static_cast<double>(random() >> (64 - bits)) / static_cast<double>(uint64_t{1} << bits);
}

size_t below(std::mt19937_64& random, size_t count) {
  return std::min(count - 1, static_cast<size_t>(uniform(random) * static_cast<double>(count)));
}

}  // namespace

std::string_view name_of(DisturbanceKind kind) {
  switch (kind) {
    case DisturbanceKind::kill:
      return "kill";
    case DisturbanceKind::pause:
      return "pause";
    case DisturbanceKind::freeze:
      return "freeze";
    case DisturbanceKind::supervisor:
      return "supervisor";
    case DisturbanceKind::guardian:
      return "guardian";
    case DisturbanceKind::spare:
      return "spare";
  }
  return "";
}

std::string text_of(const Disturbance& one) {
  if (is_of_rank(one.kind)) return fmt::format("{} of rank {}", name_of(one.kind), one.rank);
  if (one.kind == DisturbanceKind::spare) return "kill of a spare";
  return fmt::format("kill of the {}", name_of(one.kind));
}

std::vector<Disturbance> draw_schedule(const ScheduleOptions& options) {
  TRIREME_CHECK(options.count >= 1 && options.ranks >= 1 && options.steps >= 1,
                "{} disturbances of {} ranks in {} steps", options.count, options.ranks,
                options.steps);
  TRIREME_CHECK(!options.kinds.empty(), "no kind of disturbance");
  constexpr double min_pause = 0.02, max_steps_later = 2;
  // Shorter than the silence that counts (agent/rank_findings.h), with a heartbeat that is old when
  // the pause begins.
  constexpr double heartbeat_and_margin = 0.35;
  const double longest_pause =
      std::clamp(0.75 * options.detect_seconds - heartbeat_and_margin, min_pause,
                 std::max(options.detect_seconds / 2, min_pause));
  std::mt19937_64 random(options.seed);
  std::vector<Disturbance> schedule;
  for (int64_t i = 0; i < options.count; ++i) {
    Disturbance drawn{.number = i + 1};
    drawn.kind = options.kinds[below(random, options.kinds.size())];
    drawn.rank = static_cast<int>(below(random, static_cast<size_t>(options.ranks)));
    // The last of count + 1 equal parts of the run is left alone.
    const double place =
        (static_cast<double>(i) + uniform(random)) / (static_cast<double>(options.count) + 1);
    drawn.after_step = std::clamp<int64_t>(
        1 + static_cast<int64_t>(place * static_cast<double>(options.steps)), 1, options.steps);
    drawn.step_share = max_steps_later * uniform(random);
    const double pause = min_pause + (longest_pause - min_pause) * uniform(random);
    if (drawn.kind == DisturbanceKind::pause) drawn.pause_seconds = pause;
    schedule.push_back(drawn);
  }
  return schedule;
}

}  // namespace trireme::cli
