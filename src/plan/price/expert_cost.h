// SPDX-License-Identifier: Apache-2.0
// The time of the operations and transfers that only blocks with experts have. Their sizes are
// those of the facts of a layer (spec/facts/experts/expert_facts.cpp).
#pragma once

#include <vector>

#include "plan/job.h"
#include "plan/price/layer_cost.h"
#include "plan/price/op_time.h"
#include "plan/stack.h"
#include "spec/experts/moe_spec.h"
#include "spec/facts/comm_cost.h"
#include "spec/facts/op_cost.h"
#include "spec/machine.h"

namespace trireme::plan {

// Is this one product for each expert of the rank?
bool is_grouped_product(spec::OpKind);

// Does the op move rows to and from experts, or choose their places? Every program has kernels for
// that alone, so that a stack's factor on bytes does not apply.
bool is_row_op(spec::OpKind);

// Returns the rows that the busiest rank along ep computes, relative to the mean: the job's
// expert_imbalance, at most what the router can send to one rank.
double busiest_share(const Job&, const spec::MoeSpec&, int ep);

// Returns the time of a grouped product as that of equal products of one expert's rows, which are
// rounded up to the back end's tile, on the busiest rank.
double grouped_seconds(const Job&, const spec::Machine&, const spec::Backend&, const spec::MoeSpec&,
                       const LayerKey&, const spec::OpCost&, const ProductFormat& = {});

// Returns the copies of a token's row that leave a node if each of the `nodes` nodes with experts
// of the token gets one: nodes (1 - (1 - 1 / nodes)^chosen) in the mean, at most the nodes that the
// router's groups allow, less the part that stays in the token's own node.
double copies_between_nodes(const spec::RouterSpec&, int64_t nodes);

// Returns the exposed seconds of collectives along ep and etp.
double expert_seconds(const Job&, const spec::Machine&, const Stack&, const spec::MoeSpec&,
                      const LayerKey&, const std::vector<spec::CommCost>&);

}  // namespace trireme::plan
