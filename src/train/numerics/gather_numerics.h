// SPDX-License-Identifier: Apache-2.0
// The figures of 8-bit numbers of a step, of all ranks and pipeline stages.
#pragma once

#include <vector>

#include "engine/engine.h"
#include "train/numerics/numerics_figures.h"
#include "train/setup/rank.h"

namespace trireme::train {

// Returns the figures of the last step, by layer in ascending order, on all ranks: the largest magnitudes of all ranks, and the sums of their counts. `is_measured`: the
// step had counts. Waits for the device. Collective.
std::vector<LayerFigures> gather_numerics(engine::Engine&, Rank&, const spec::ModelSpec&,
                                          bool is_measured);

}  // namespace trireme::train
