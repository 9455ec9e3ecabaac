// SPDX-License-Identifier: Apache-2.0
// How long ranks of a pipeline wait because of their schedule.
#pragma once

#include <vector>

#include "analysis/rank_view.h"
#include "analysis/run_record.h"

namespace trireme::analysis {

// Returns the median compute seconds of a step by pp coordinate.
std::vector<double> stage_seconds(const RankView& view);

// Simulates the plan's schedule with the measured compute time of each stage, and returns the
// seconds of a step in which a mean rank does not compute. 0 if there is no pipeline, or if the
// plan cannot be read.
double pipeline_bubble(const RunRecord& run, const RankView& view);

}  // namespace trireme::analysis
