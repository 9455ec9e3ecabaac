// SPDX-License-Identifier: Apache-2.0
// Tables of predicted and measured memory and traffic, as text for a terminal.
#pragma once

#include <span>
#include <string>

#include "train/report/train_summary.h"

namespace trireme::train {

// Predicted and measured bytes side by side, one row per purpose.
std::string memory_table_text(const spec::MemoryTable& predicted, const spec::MemoryTable& measured,
                              const RunCheckpoints::Memory& checkpoints = {});
// One row per rank: memory, and the bytes that it sent.
std::string ranks_table_text(std::span<const RankFigures> ranks);

}  // namespace trireme::train
