// SPDX-License-Identifier: Apache-2.0
// The time that context parallelism adds to the attention of a block: transfers that no compute
// hides. spec/facts/context_facts.cpp lists the collectives.
#pragma once

#include <vector>

#include "plan/price/layer_cost.h"
#include "plan/stack.h"
#include "spec/facts/comm_cost.h"
#include "spec/machine.h"

namespace trireme::plan {

// Returns the exposed seconds of the collectives along cp, if attention computes for `compute`
// seconds:
//   ulysses: all of it, because attention needs the exchanged rows;
//   gather: the first of its calls (in the backward also the last sum), and what the computation of
//     the others does not hide;
//   ring: what attention does not hide.
// Stack::cp_overlap is the part of the compute under which transfers hide. Programs other than the
// engine sum gradients of keys and values in 16 bits. in_fixed_order: sums_in_fixed_order().
double context_seconds(const spec::Machine&, const Stack&, const LayerKey&,
                       const std::vector<spec::CommCost>&, double compute,
                       bool in_fixed_order = false);

// Returns the time of one of them.
double context_comm_seconds(const spec::Machine&, const LayerKey&, const spec::CommCost&,
                            bool in_fixed_order = false);

}  // namespace trireme::plan
