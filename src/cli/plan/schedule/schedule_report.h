// SPDX-License-Identifier: Apache-2.0
// Shared by `schedule` and `sim`: parsing lists of numbers, and printing a simulated schedule.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/args.h"
#include "schedule/schedule.h"
#include "sim/sim.h"

namespace trireme::cli {

constexpr int grid_columns = 100;

// Parses "1,2.5,1". Throws ConfigError, which names `option`, unless there are from `min_count` to
// `max_count` numbers, all at least 0.
std::vector<double> number_list(const std::string& option, const std::string& text,
                                size_t min_count, size_t max_count);

struct Played {
  std::string title;
  const schedule::Schedule& schedule;
  const sim::Result& result;  // with its timeline
  bool is_seconds = false;    // times are seconds and sizes bytes; otherwise in any unit
};
// Prints the grid and a few figures, or one object with --json; writes the picture of --svg.
// REQUIRES: the verb has the options of report_options().
void report(const Played&, const Args&);
std::vector<Option> report_options();

}  // namespace trireme::cli
