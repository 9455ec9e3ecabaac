// SPDX-License-Identifier: Apache-2.0
// For tests: schedules edited by the text of their actions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "schedule/schedule.h"

namespace trireme::schedule {

using Place = std::vector<Action>::iterator;

// The action that `text` writes, wherever it stands on `rank`.
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
