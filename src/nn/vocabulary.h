// SPDX-License-Identifier: Apache-2.0
// Cross-entropy over a vocabulary whose columns lie on several ranks.
#pragma once

#include "kernels/args.h"
#include "nn/boundary.h"

namespace trireme::nn {

// As kernels::ops::cross_entropy, of the whole vocabulary: the logits are this rank's columns, from
// `first_column` on. Takes scratch for the stats of all ranks.
void cross_entropy(Pass&, const Boundary&, const kernels::CrossEntropyArgs&, int64_t first_column);

}  // namespace trireme::nn
