// SPDX-License-Identifier: Apache-2.0
// What the ranks of a new epoch have of the training state, as they report it to each other
// (epoch_state.h).
#pragma once

#include <optional>
#include <vector>

#include "train/run/state/epoch_state.h"

namespace trireme::train {

// Returns the boxes that a rank has under the plan: those of each range of its state.
std::vector<std::vector<ckpt::TensorPieces>> boxes_of(const spec::ModelSpec&, const spec::Plan&,
                                                      int rank);

struct SharedReports {
  std::vector<StateReport> all;         // by rank, the same on all of them
  std::vector<ckpt::FoundCopy> copies;  // of this rank, in its own memory, that count
};
// Exchanges what ranks have: `kept`, copies in their own memory whose content is intact, and copies
// that they keep for others. Collective.
SharedReports gather_reports(Rank&, const spec::ModelSpec&, const spec::Plan&, const CopiesOfRank&,
                             const std::optional<KeptState>& kept);

}  // namespace trireme::train
