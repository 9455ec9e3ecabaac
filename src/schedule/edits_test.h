// SPDX-License-Identifier: Apache-2.0
// For tests: schedules with all passes, the result of check(), and edits by the text of actions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/schedule.h"

namespace trireme::schedule {

inline Schedule finished(Schedule schedule) {
  return add_tied(add_reduce(add_p2p(std::move(schedule))));
}

inline std::string reason(const Schedule& schedule, int send_buffers = 1) {
  return check(schedule, send_buffers).reason();
}

using Place = std::vector<Action>::iterator;

// Finds the action with this text on `rank`.
inline Place find(Schedule& schedule, size_t rank, std::string_view text) {
  std::vector<Action>& program = schedule.program.at(rank);
  const auto found =
      std::ranges::find_if(program, [&](const Action& action) { return to_text(action) == text; });
  EXPECT_NE(found, program.end()) << text << " is not on rank " << rank;
  return found;
}

inline void drop(Schedule& schedule, size_t rank, std::string_view text) {
  schedule.program[rank].erase(find(schedule, rank, text));
}

inline void swap(Schedule& schedule, size_t rank, std::string_view one, std::string_view other) {
  std::iter_swap(find(schedule, rank, one), find(schedule, rank, other));
}

}  // namespace trireme::schedule
