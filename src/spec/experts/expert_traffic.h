// SPDX-License-Identifier: Apache-2.0
// The ranks that work together on the experts of a layer, the bytes that they send, and the receive
// buffer of their sums.
#pragma once

#include <vector>

#include "spec/plan.h"

namespace trireme::spec {

// Returns the axes along which ranks have other rows of this rank's sequences: cp and, under
// sequence parallelism, tp.
std::vector<Axis> token_axes(const Plan&);
// Returns the axes along which ranks have other rows in a step: also those of the data ranks.
std::vector<Axis> step_axes(const Plan&);
int ranks_along(const Sizes&, const std::vector<Axis>&);
// Do layers compare the choices of a micro-batch with those of all ranks in the step so far?
bool sums_loads_of_step(const ModelSpec&);

// The receive buffer of sums of loads and, along etp, of rows; it also serves reads of parameters
// by name. Empty on one rank, and without experts.
base::TensorSpec expert_buffer(const ModelSpec&, const Plan&);

// Bytes that a rank of this pp coordinate sends in a step along ep and etp, and for loads of
// experts.
struct ExpertTraffic {
  int64_t forward = 0, backward = 0;  // the latter with those of recompute
};
ExpertTraffic predict_expert_traffic(const ModelSpec&, const Plan&, int pp_rank);

}  // namespace trireme::spec
