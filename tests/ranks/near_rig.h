// SPDX-License-Identifier: Apache-2.0
// A layout whose order of sums is not that of one rank, beside one rank.
#pragma once

#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {

// Expects gradients of the first step, losses, norms and weights after three steps within `bound`
// of one rank's, each relative to the size of the tensor.
void expect_near_one_rank(Layout layout, double bound);

}  // namespace trireme::tests
