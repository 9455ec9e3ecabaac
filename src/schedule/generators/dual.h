// SPDX-License-Identifier: Apache-2.0
// The common part of DualPipe and DualPipeV. A rank receives micro-batches from two sides: those of
// side 0 enter the pipeline at the rank's end of it, those of side 1 come back from its middle.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "schedule/schedule.h"

namespace trireme::schedule {

struct DualRank {
  int depth = 1;                      // ranks from the end of the pipeline to its middle
  int place = 0;                      // of this rank, 0 at the end
  int count = 0;                      // micro-batches of each side; REQUIRES: at least 2 * depth
  std::array<int16_t, 2> stage = {};  // by side
  std::function<int32_t(int side, int index)> microbatch;
};
std::vector<Action> dual_program(const DualRank&);

}  // namespace trireme::schedule
