// SPDX-License-Identifier: Apache-2.0
// Schedules by name, with the shapes that each can have.
#pragma once

#include <span>
#include <string_view>

#include "schedule/schedule.h"

namespace trireme::schedule {

struct Named {
  std::string_view name;
  std::string_view what;  // one line
  int chunks = 1;         // of a rank; 0: as many as wanted
  Schedule (*make)(int ranks, int microbatches, int chunks) = nullptr;
};
// All but capped(), which needs costs.
std::span<const Named> catalogue();

// Upper and lower case, dashes and underscores make no difference: "ZB-H1", "zbh1". A "no" lists
// what there is.
base::Result<Named> find_named(std::string_view name);

constexpr int usual_chunks = 2;  // of those that take any

struct Shape {
  int ranks = 1, microbatches = 1;
  int chunks = 0;  // 0: the schedule's own number, or usual_chunks
};
// Compute alone, before the passes. A "no" names the nearest shapes that the schedule can have.
base::Result<Schedule> generate(std::string_view name, const Shape&);

}  // namespace trireme::schedule
