// SPDX-License-Identifier: Apache-2.0
// The training loss of a step by data set.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "train/batches/batches.h"
#include "train/batches/data_sets.h"
#include "train/setup/rank.h"
#include "train/weights/sequence_loss.h"

namespace trireme::train {

// Returns the sums of the step that `batches` filled last, by data set, over all data ranks; the
// same on all ranks. The order of additions depends on the number of ranks. REQUIRES: the plan
// keeps losses, and no evaluate() since that step. Collective.
std::vector<SequenceLoss> source_losses(engine::Engine&, Rank&, const DataSets&,
                                        const TrainBatches& batches);

// "loss      web 3.1416, code 2.7183": data sets without tokens in the step are left out.
std::string source_losses_line(const DataSets&, const std::vector<SequenceLoss>&);

}  // namespace trireme::train
