// SPDX-License-Identifier: Apache-2.0
// Tables of predicted and measured memory and traffic, as text for a terminal.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/report/train_summary.h"
#include "train/setup/fit.h"

namespace trireme::train {

struct MemoryRow {
  const char* name;
  int64_t predicted, measured;  // bytes

  bool is_empty() const { return predicted == 0 && measured == 0; }
};
// The purposes of a memory table, in the order in which they are shown; the last row is the sum.
std::vector<MemoryRow> memory_rows(const spec::MemoryTable& predicted,
                                   const spec::MemoryTable& measured);

// Predicted and measured bytes side by side, one row per purpose.
std::string memory_table_text(const spec::MemoryTable& predicted, const spec::MemoryTable& measured,
                              const HostMemory& host = {});
// The same as a line of the start, as predicted: the most that a rank has at one time, and what it
// is for.
std::string host_line(const HostBytes&);
// One row per rank: memory, and the bytes that it sent.
std::string ranks_table_text(std::span<const RankFigures> ranks);

}  // namespace trireme::train
