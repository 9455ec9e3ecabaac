// SPDX-License-Identifier: Apache-2.0
// The screen of `trireme watch`: a run as lines of text, in any width from 40 columns on.
#pragma once

#include <string>
#include <vector>

#include "cli/watch/run_summary.h"

namespace trireme::cli {

struct ScreenShape {
  int columns = 80;
  int rows = 0;  // 0: as many as needed
  bool is_unicode = true;
};
constexpr int min_screen_columns = 40;

// Returns lines without newline and without control characters, none wider than the screen, at most
// `rows` of them. `now`: seconds since 1970. REQUIRES: columns >= min_screen_columns.
std::vector<std::string> watch_screen(const RunSummary& summary, const ScreenShape& shape,
                                      double now);

// Splits a text between words into lines of at most `columns`; longer words are cut.
std::vector<std::string> wrapped(std::string_view text, int columns);

}  // namespace trireme::cli
