// SPDX-License-Identifier: Apache-2.0
// The layout with which a job goes on after one of its ranks was short of memory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "spec/machine.h"

namespace trireme::cli {

struct NextLayout {
  std::vector<std::string> words;  // the keys that change, as options of train
  std::string text;                // the layout, its memory and its time, for people
};
// Returns the fastest layout that the planner finds for the same job on the same ranks, and that is
// predicted to need at most `share` of the memory of the present one; none if there is none.
// REQUIRES: a configuration without open keys. Throws ConfigError if the machine lacks a figure
// that the search needs.
constexpr double next_memory_share = 0.9;
std::optional<NextLayout> next_layout(const config::Config& present, const spec::Machine& machine,
                                      double share = next_memory_share);

// Asks the planner what to do about ranks of a run that were short of memory: next_layout() on the
// machine of the configuration, or the one that the run's prediction names. Returns the keys that
// change. Empty, and the reason is logged, if there is no such machine or layout; or if the run has
// not begun since `started`, in seconds since 1970: its layout is then the user's to change, and
// its error names what would fit.
std::vector<std::string> layout_after_lack(const config::Config& config, int ranks, double started);

}  // namespace trireme::cli
