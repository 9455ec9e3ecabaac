// SPDX-License-Identifier: Apache-2.0
// Rules of diagnose(): each looks for one kind of trouble in the facts of a run and returns what it
// found with its figures. A rule that lacks its facts finds nothing.
//
// Times on a shared machine are noisy. A rule therefore compares medians of windows, demands that a
// deviation persists, and compares ranks only with ranks that compute the same.
#pragma once

#include <string>
#include <vector>

#include "analysis/diagnosis.h"
#include "analysis/rank_view.h"
#include "analysis/statistics.h"

namespace trireme::analysis {

using Findings = std::vector<Finding>;

struct Facts {
  const RunRecord& run;
  const Waterfall& fall;
  const RankView& windows;        // of at least 20 steps: what is found with patience
  const RankView& short_windows;  // of at least 5 steps: what is large enough to be found soon
  const RankView& records;        // as they were written
};

Findings find_dead_rank(const Facts&);
Findings find_slow_rank(const Facts&);
Findings find_throttled_clock(const Facts&);
Findings find_slow_link(const Facts&);
Findings find_stage_imbalance(const Facts&);
Findings find_data_starvation(const Facts&);
Findings find_slow_save(const Facts&);
Findings find_host_pauses(const Facts&);
Findings find_needless_recompute(const Facts&);
Findings find_memory_near_limit(const Facts&);
Findings find_drifting_numbers(const Facts&);
Findings find_diverged(const Facts&);
Findings find_skipped_steps(const Facts&);
Findings find_unsaved_steps(const Facts&);
Findings find_missing_weights(const Facts&);
Findings find_earlier_failures(const Facts&);
// The rules that need to know what the others found.
Findings find_stale_machine_file(const Facts&, const Findings& others);
Findings find_unknown(const Facts&, const Findings& others);
// Errors of the last attempt that no other finding is about.
Findings find_reported_errors(const Facts&, const Findings& others);

// ---- shared by rules
// Returns "since step 120", "from step 120 to 480", or "in all measured steps".
std::string steps_text(const RankView& view, const WindowRange& range);
// Returns whether the range reaches the last windows.
bool is_present(const RankView& view, const WindowRange& range);
// Returns whether a range is worth a finding: seconds of steps, and, if it is over, a tenth of all
// windows.
bool is_long(const RankView& view, const WindowRange& range);
std::string percent_text(double share);    // 0.214 -> "21 %", 0.034 -> "3.4 %"
std::string seconds_text(double seconds);  // "12.3 ms", "1.85 s"
// Returns the median seconds of a step over ranks and windows of the range.
double step_in(const RankView& view, const WindowRange& range);
// Returns the seconds of a rank in which it waited for no other rank.
double own_seconds(const RankView& view, size_t window, size_t rank);

// Returns whether ranks that compute on processors of their hosts got less of them than they
// needed: other programs, or more ranks than processors, compete.
bool is_contended(const RankView& view, const std::vector<size_t>& ranks, const WindowRange& range);

// Returns the seconds by which the longest step of a window exceeds the others, if it is so much
// longer that something paused, and if neither data nor a checkpoint explains it; otherwise 0.
double pause_in(const RankView& view, size_t window);
// Returns the mean seconds of the steps of a window other than the longest.
double steps_beside_longest(const RankView& view, size_t window);

// The windows at which a value rose and stayed: `before` and `after` are medians.
struct Rise {
  WindowRange after_range;
  double before = 0, after = 0;
};
// Finds the split of the windows that separates lower from higher values best. Returns nothing if
// the medians differ by less than `min_ratio`, or by less than noise may do, or if a side has fewer
// than `min_windows` windows.
std::optional<Rise> find_rise(const std::vector<double>& values, double min_ratio,
                              size_t min_windows);

}  // namespace trireme::analysis
