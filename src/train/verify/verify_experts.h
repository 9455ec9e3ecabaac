// SPDX-License-Identifier: Apache-2.0
// Models with experts in verify(): how they are scaled down, and which options of a job run
// differently because one rank could not have the same results.
#pragma once

#include <string>
#include <vector>

#include "spec/plan.h"

namespace trireme::train {

// Scales the experts of `small`, whose other sizes and number of blocks are those of the small
// model, and the layout's limits on rows; adds notes on differences other than sizes. Keeps ep and
// etp, one expert a rank, groups, shared experts and dense blocks; initial weights become larger. A
// job without experts stays as it is.
void scale_experts(spec::ModelDims& small, spec::Layout&, std::vector<std::string>& notes);

// Returns the small model with every token processed by every expert, and with the initial weights
// of the `full` one. Recipes are compared with it: rounding changes the choices between experts of
// nearly equal scores, and with them the gradients.
spec::ModelDims with_all_chosen(spec::ModelDims small, const spec::ModelDims& full);

// Reduces ep to the largest legal value below it if `l`, whose data axes were reduced, has too few
// ranks for it.
void shrink_expert_axes(spec::Layout& l, std::vector<std::string>& notes);

}  // namespace trireme::train
