// SPDX-License-Identifier: Apache-2.0
// Pictures of a played schedule: a grid of letters for the terminal, and SVG. They take times as
// they come, so that measured ones can be drawn beside simulated ones.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "sim/sim.h"

namespace trireme::sim {

// One line a rank, time to the right: "F3---B0---W0--...". A cell is the operation's letter and, if
// there is room, its micro-batch; letters of every other chunk of a rank are small; X is an
// overlapped pair, a point idle. REQUIRES: a timeline.
std::string grid(const schedule::Schedule&, const Result&, int columns);
// What the letters mean, for those that occur.
std::string legend(const schedule::Schedule&);

// The programs around the fault's place, which is marked.
std::string fault_grid(const schedule::Schedule&, const schedule::Fault&, int columns);

// A panel has a legend, a row for each rank with messages as thin lines, and, if memory is known, a
// chart of every rank's activations.
struct Panel {
  std::string title;
  const schedule::Schedule* schedule = nullptr;
  const Result* result = nullptr;  // with its timeline
  bool is_seconds = false;  // times are in seconds, memory is in bytes; otherwise both are in units
                            // of the caller
};
// Draws one panel below the other, on one scale of time.
std::string svg(const std::vector<Panel>&);

}  // namespace trireme::sim
