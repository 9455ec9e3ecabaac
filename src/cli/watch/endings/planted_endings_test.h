// SPDX-License-Identifier: Apache-2.0
// For tests: how runs end, alone and in combinations, and what is to be said of each.
#pragma once

#include <functional>
#include <vector>

#include "cli/watch/endings/planted_run_test.h"

namespace trireme::cli {

constexpr int killed = -1, alive = -2;  // in place of an exit code

struct PlantedEnding {
  const char* name;
  int64_t total_steps;
  std::function<void(PlantedRun&)> plant;
  const char* kind;      // of the outcome
  const char* severity;  // likewise
  int exit_code;
};
const std::vector<PlantedEnding>& endings();

// A run whose loss is 6.6e8 and 7 of whose 12 steps were skipped, and so on.
PlantedStep explodes(int64_t step);

}  // namespace trireme::cli
