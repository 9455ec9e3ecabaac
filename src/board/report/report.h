// SPDX-License-Identifier: Apache-2.0
// A report: the page of a board with all its answers in one HTML file, which needs neither a server
// nor a network. Curves have all their points as far as 50,000 suffice for all of them, otherwise
// the buckets of 2,000 pixel columns.
#pragma once

#include <cstddef>
#include <string>

#include "board/board.h"

namespace trireme::board {

constexpr size_t max_report_points = 50'000;        // of all curves that are complete
constexpr size_t max_report_cells = 200'000;        // of all heat maps
constexpr size_t max_report_cells_of_map = 40'000;  // of one

// REQUIRES: poll() was called. Throws ConfigError in a build without pages.
std::string report_html(const Board& board);

// The object of answers by URL that a report carries.
std::string inlined_answers(const Board& board);

// The post-mortem of every failure as HTML: what failed, when, what it cost, and the events before
// it. Empty if nothing failed.
std::string post_mortems(const RunView& run);

}  // namespace trireme::board
