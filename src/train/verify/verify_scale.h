// SPDX-License-Identifier: Apache-2.0
// Scales a job down for verify(): the same cuts, segments, ties and buffers, with few elements.
#pragma once

#include <string>
#include <vector>

#include "spec/plan.h"

namespace trireme::train {

struct ScaledJob {
  spec::ModelDims dims;
  spec::Workload work;  // its batch follows from the layout
  spec::Layout layout;
  std::vector<std::string> notes;  // differences other than sizes
};

// Sizes keep their remainder modulo tp, and are multiples of the grain of products in 8 bits; heads
// keep their ratio to key heads; context parallelism keeps its ranks, kind and slices, with a few
// rows in each chunk; a pipeline keeps its ranks, schedule and stages, each with its number of
// layers up to a few, and enough micro-batches to fill it; experts are scaled by verify_experts.h;
// data axes are kept up to `max_ranks` ranks in total, beyond that they become 2. `full` is the
// plan of the complete job. Throws ConfigError if tp, cp and pp alone exceed max_ranks.
ScaledJob scale_down(const spec::ModelDims&, const spec::Workload&, const spec::Plan& full,
                     const spec::Backend&, int max_ranks);

}  // namespace trireme::train
