// SPDX-License-Identifier: Apache-2.0
// The cost of experts in place of a block's feed-forward. The engine does not have them yet, so
// these prices rest on published runs alone ("unaudited").
#pragma once

#include "plan/job.h"
#include "plan/price/layer_cost.h"

namespace trireme::plan {

// Returns the width of the ordinary feed-forward that stands for the shared experts of a block, or
// the smallest width that facts() accepts.
int64_t shared_width(const Experts&, int tp);

// Adds the router, the exchange of tokens and the routed experts to a block's cost, with tokens
// spread evenly over experts.
void add_experts(const Job&, const spec::Machine&, const Stack&, const LayerKey&, LayerCost&);

}  // namespace trireme::plan
