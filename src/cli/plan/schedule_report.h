// SPDX-License-Identifier: Apache-2.0
// What `schedule` and `sim` have in common: reading lists of numbers, and showing a played
// schedule.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/args.h"
#include "schedule/schedule.h"
#include "sim/sim.h"

namespace trireme::cli {

constexpr int grid_columns = 100;

// The numbers of "1,2.5,1". ConfigError, which names `option`, unless there are between `least` and
// `most`, all of at least 0.
std::vector<double> number_list(const std::string& option, const std::string& text, size_t least,
                                size_t most);

struct Played {
  std::string title;
  const schedule::Schedule& schedule;
  const sim::Result& result;  // with its timeline
  bool is_seconds = false;    // times are seconds and sizes bytes; otherwise units of the caller's
};
// The grid and a few figures, or one object with --json; and the picture where --svg asks for it.
// REQUIRES: the verb has the options of report_options().
void report(const Played&, const Args&);
std::vector<Option> report_options();

}  // namespace trireme::cli
