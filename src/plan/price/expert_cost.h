// SPDX-License-Identifier: Apache-2.0
// Experts in place of a block's feed-forward. The engine does not have them yet, so these prices
// rest on published runs alone ("unaudited").
#pragma once

#include "plan/job.h"
#include "plan/price/layer_cost.h"

namespace trireme::plan {

// Width of the ordinary feed-forward that a block with experts keeps: of the shared ones, or the
// least that facts() can price.
int64_t shared_width(const Experts&, int tp);

// Adds router, exchange of tokens and experts to a block's cost. Tokens are spread evenly.
void add_experts(const Job&, const spec::Machine&, const Stack&, const LayerKey&, LayerCost&);

}  // namespace trireme::plan
