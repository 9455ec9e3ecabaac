// SPDX-License-Identifier: Apache-2.0
// Pictures of a simulated or measured step: a grid of letters for the terminal, and SVG.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "sim/sim.h"

namespace trireme::sim {

// Returns one line per rank, time to the right: "F3---B0---W0--...". A cell is the operation's
// letter and, if there is room, its micro-batch; letters of every second chunk of a rank are
// lower-case; X is an overlapped pair, a dot is idle time. REQUIRES: a timeline.
std::string grid(const schedule::Schedule&, const Result&, int columns);
// Returns the meaning of the letters that occur.
std::string legend(const schedule::Schedule&);

// Returns the programs around the fault's place, which is marked.
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
