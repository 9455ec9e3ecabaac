// SPDX-License-Identifier: Apache-2.0
// How ranks along tp share parameters and gradients of a bucket. Parameters that are cut along tp
// are a rank's own; of the others every rank has the same copy and updates it by itself, so its
// gradient must be the same bits on all of them, and counts once in the norm.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "spec/parallel/bucket.h"
#include "spec/plan.h"
#include "spec/parallel/shard.h"

namespace trireme::spec {

// Elements of a bucket whose gradients are partial sums on each rank along tp.
Range summed_along_tp(const BucketLayout&, bool sequence_parallel);

// What of the elements `held` this rank counts in the gradient norm: its own parts, and on the
// first rank the copies, too.
std::vector<Range> counted_along_tp(const BucketLayout&, Range held, const Coord&);

// Where parts of sums along tp arrive; empty on one rank.
base::TensorSpec tensor_buffer(const ModelSpec&, const Plan&);

// Bytes that a rank of this pp coordinate sends along tp in a step.
struct TensorTraffic {
  int64_t forward = 0, backward = 0, grads = 0;
};
TensorTraffic predict_tensor_traffic(const ModelSpec&, const Plan&, int pp_rank);

}  // namespace trireme::spec
