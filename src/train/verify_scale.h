// SPDX-License-Identifier: Apache-2.0
// A job made small for verify(): the same cuts, segments, ties and buffers, on few numbers.
#pragma once

#include <string>
#include <vector>

#include "spec/plan.h"

namespace trireme::train {

struct ScaledJob {
  spec::ModelDims dims;
  spec::OneRankOptions one_rank;
  spec::SplitOptions split;
  std::vector<std::string> notes;  // what differs besides sizes
};

// What divides by tp still does, and what does not leaves the same rest; heads keep their ratio to
// key heads; a pipeline keeps its ranks, schedule and stages, each with as many layers as it has,
// up to a few, and micro-batches enough to fill it; data axes are kept up to `most_ranks` ranks in
// all, beyond it they become 2. `full` is the checked plan of the whole job. Throws ConfigError
// where tp and pp alone are more than most_ranks.
ScaledJob scale_down(const spec::ModelDims&, const spec::OneRankOptions&, const spec::SplitOptions&,
                     const spec::Plan& full, const spec::Backend&, int most_ranks);

}  // namespace trireme::train
