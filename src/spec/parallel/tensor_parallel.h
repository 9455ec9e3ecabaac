// SPDX-License-Identifier: Apache-2.0
// How ranks along tp share parameters and gradients of a bucket. Each rank holds its part of the
// parameters that are cut along tp. The others are replicated, and every rank updates its copy
// separately, so its gradient must have the same bits on all ranks and counts once in the norm.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "spec/parallel/bucket.h"
#include "spec/parallel/shard.h"
#include "spec/plan.h"

namespace trireme::spec {

// Returns the ranges of a bucket whose gradients are partial sums on each rank along tp, without
// empty ones.
std::vector<Range> summed_along_tp(const BucketLayout&, bool sequence_parallel);

// Returns the part of the elements `held` that this rank counts in the gradient norm: its parts of
// cut parameters, and on the first rank also the replicated ones. Every rank counts all of an
// expert bucket, which other ranks do not have.
std::vector<Range> counted_along_tp(const BucketLayout&, Range held, const Coord&);

// The receive buffer of sums along tp; empty on one rank.
base::TensorSpec tensor_buffer(const ModelSpec&, const Plan&);

// Bytes that a rank of this pp coordinate sends along tp in a step.
struct TensorTraffic {
  int64_t forward = 0, backward = 0, grads = 0;
};
TensorTraffic predict_tensor_traffic(const ModelSpec&, const Plan&, int pp_rank);

}  // namespace trireme::spec
