// SPDX-License-Identifier: Apache-2.0
// How long a run waited for slow ranks, from what its ranks report about their compute.
#pragma once

#include <span>

#include "obs/files/rank_columns.h"
#include "spec/parallel/axes.h"

namespace trireme::train {

// Returns the seconds of a step for which it waited for ranks that compute more
// slowly than the median of their stage, relative to the work that each has; 0 below 3 % of a
// step's compute, which is noise. `samples`: by rank, of one exchange.
double straggler_seconds(const spec::Sizes& mesh, std::span<const obs::RankSample> samples);

}  // namespace trireme::train
