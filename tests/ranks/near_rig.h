// SPDX-License-Identifier: Apache-2.0
// Comparison of a layout whose order of sums differs from that of one rank with one rank.
#pragma once

#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {

// Expects gradients of the first step, and losses, norms and weights after three steps, to be
// within `bound` of those of one rank, relative to the size of each tensor; the loss of the first
// step within `loss_bound`.
void expect_near_one_rank(Layout layout, double bound, double loss_bound = 1);

}  // namespace trireme::tests
