// SPDX-License-Identifier: Apache-2.0
// A job made small for verify(): the same cuts, segments, ties and buffers, on few numbers.
#pragma once

#include <string>
#include <vector>

#include "spec/plan.h"

namespace trireme::train {

struct ScaledJob {
  spec::ModelDims dims;
  spec::Workload work;  // its batch is what the layout makes
  spec::Layout layout;
  std::vector<std::string> notes;  // what differs besides sizes
};

// What divides by tp still does, and what does not leaves the same rest; heads keep their ratio to
// key heads; a pipeline keeps its ranks, schedule and stages, each with as many layers as it has,
// up to a few, and micro-batches enough to fill it; data axes are kept up to `max_ranks` ranks in
// all, beyond it they become 2. `full` is the plan of the whole job. Throws ConfigError
// where tp and pp alone are more than max_ranks.
ScaledJob scale_down(const spec::ModelDims&, const spec::Workload&, const spec::Plan& full,
                     const spec::Backend&, int max_ranks);

}  // namespace trireme::train
