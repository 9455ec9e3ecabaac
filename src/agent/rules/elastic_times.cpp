// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/elastic_times.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/world/rank_env.h"

namespace trireme::agent {

ElasticTimes elastic_times(double detect_s) {
  // Looks at heartbeats and the verdict take the rest of detect_s.
  constexpr double silent_share = 0.75;
  // Ending groups and copying the state takes as long for the largest of ranks. One that hangs in
  // it is started again.
  constexpr double min_leave_s = 8;
  // In which the guardian of a launcher that has ended starts it again.
  constexpr double grace_s = 3;
  return {.detect = detect_s,
          .silence = silent_share * detect_s,
          .leave = std::max(min_leave_s, detect_s),
          // A rank that is silent is found first, and starts the way to the next epoch.
          .node_silence = 2 * detect_s,
          .node_grace = grace_s};
}

std::string to_text(const ElasticTimes& times, int nodes) {
  std::string text = fmt::format(
      "elastic   ranks that are lost are replaced: at once if they end, after {:g} s without a "
      "heartbeat (verdict within {:g} s), or if they hang for 5 x the longest steps, at least 2 s; "
      "the others have {:g} s to leave the epoch",
      times.silence, times.detect, times.leave);
  if (nodes > 1) {
    text += fmt::format(
        "; a node is lost after {:g} s of silence, or {:g} s after its launcher has ended; one "
        "that "
        "is cut off stops after {:g} s",
        times.node_silence, times.node_grace, comm::isolate_seconds);
  }
  return text;
}

}  // namespace trireme::agent
