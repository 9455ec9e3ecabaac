// SPDX-License-Identifier: Apache-2.0
// Bytes that ranks along cp send, and their receive buffer. token_slice.h describes which rows a
// rank has, spec/facts/context_facts.cpp the collectives of a block.
#pragma once

#include "spec/plan.h"

namespace trireme::spec {

// The receive buffer of sums of key and value gradients; empty unless keys are gathered.
base::TensorSpec context_buffer(const ModelSpec&, const Plan&);

// Loss sums of each rank along cp and losses of its tokens, which an evaluation gathers; empty on
// one rank.
base::TensorSpec context_reports(const Plan&);

// Bytes that a rank of this pp coordinate sends along cp in a step.
struct ContextTraffic {
  int64_t forward = 0, backward = 0;  // the latter with those of recompute
};
ContextTraffic predict_context_traffic(const ModelSpec&, const Plan&, int pp_rank);

}  // namespace trireme::spec
