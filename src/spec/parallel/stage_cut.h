// SPDX-License-Identifier: Apache-2.0
// Where a model is cut into stages: embedding and head are units with a price like the blocks.
#pragma once

#include <span>
#include <vector>

namespace trireme::spec {

// Cuts `costs`, one per layer, into `stages` runs so that the dearest costs the least; of equal
// cuts, the one whose first stages are largest. Gives the first layer of each. REQUIRES: 1 <=
// stages
// <= layers; no cost is below 0.
std::vector<int> balanced_cut(std::span<const double> costs, int stages);

}  // namespace trireme::spec
