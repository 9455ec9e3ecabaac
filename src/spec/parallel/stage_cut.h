// SPDX-License-Identifier: Apache-2.0
// Cuts a model into stages. Embedding and head are units with a cost like the blocks.
#pragma once

#include <span>
#include <vector>

namespace trireme::spec {

// Cuts `costs`, one per layer, into `stages` runs so that the most expensive run is as cheap as
// possible; of equal cuts it chooses the one whose first stages are largest. Returns the first
// layer of each. REQUIRES: 1 <= stages <= layers; no cost is below 0.
std::vector<int> balanced_cut(std::span<const double> costs, int stages);

}  // namespace trireme::spec
