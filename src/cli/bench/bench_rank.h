// SPDX-License-Identifier: Apache-2.0
// bench train --as-rank: the layout and the rank, from options.
#pragma once

#include <optional>
#include <vector>

#include "cli/shell/args.h"
#include "spec/model.h"
#include "train/measure/lone_rank/lone_rank.h"
#include "train/measure/step_bench.h"

namespace trireme::cli {

// --as-rank, --layout, --machine.
std::vector<Option> bench_rank_options();

// Sets layout and rank, if --as-rank is given. `options` has the layout of bench train's other
// options, of which those that are given apply. Throws ConfigError if one of them contradicts the
// text of the layout, or if the layout has no such rank.
void take_rank(const Args&, train::StepBenchOptions& options);

// Returns the predicted times if --machine is given. REQUIRES: take_rank() was called.
std::optional<train::LoneRankTime> rank_time(const Args&, const spec::ModelSpec&,
                                             const train::StepBenchOptions&);

}  // namespace trireme::cli
