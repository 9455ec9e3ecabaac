// SPDX-License-Identifier: Apache-2.0
// Cross-entropy over a vocabulary whose columns are split over ranks.
#pragma once

#include "kernels/args.h"
#include "nn/boundary.h"

namespace trireme::nn {

// Computes kernels::ops::cross_entropy over the whole vocabulary. `logits` are this rank's columns,
// which start at `first_column`. Takes scratch for the stats of all ranks.
void cross_entropy(Pass&, const Boundary&, const kernels::CrossEntropyArgs&, int64_t first_column);

}  // namespace trireme::nn
