// SPDX-License-Identifier: Apache-2.0
// The time that context parallelism adds to the attention of a block: transfers that no compute
// hides. spec/parallel/context_parallel.h lists the collectives and the balance of slices.
#pragma once

#include "plan/price/layer_cost.h"
#include "plan/stack.h"
#include "spec/facts/op_cost.h"
#include "spec/machine.h"
#include "spec/parallel/context_parallel.h"

namespace trireme::plan {

// Returns what ranks along cp share; `attention` has the heads of a rank along tp. Programs other
// than the engine sum gradients of keys and values in the type of activations.
spec::ContextShape context_shape(const Job&, const Stack&, const LayerKey&,
                                 const spec::AttentionShape& attention);

// Exposed seconds of one block, if attention computes for the given seconds:
//   ulysses: all of it, because attention needs the exchanged rows;
//   gather: the first of the heads of keys and values (in the backward also the last sum), and what
//     the computation of the others does not hide;
//   ring: what attention does not hide.
// Stack::cp_overlap is the part of the compute under which transfers hide.
struct ContextSeconds {
  double forward = 0, backward = 0;
};
ContextSeconds context_seconds(const spec::Machine&, const Stack&, const LayerKey&,
                               const spec::ContextShape&, const ContextSeconds& compute);

// Returns the time of one collective, all its repetitions.
double context_comm_seconds(const spec::Machine&, const spec::ContextComm&, int tp);

}  // namespace trireme::plan
