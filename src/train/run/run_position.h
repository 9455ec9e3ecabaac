// SPDX-License-Identifier: Apache-2.0
// RunPosition: where an attempt begins in its run.
#pragma once

#include <cstdint>
#include <optional>

#include "train/checkpointing/run_checkpoints.h"

namespace trireme::train {

struct RunPosition {
  int64_t first_step = 1;  // counted from 1
  int64_t shift = 0;       // offset of sample positions from those of Leg; see TrainBatches
  int64_t samples_before = 0, tokens_before = 0;  // consumed by earlier attempts

  bool operator==(const RunPosition&) const = default;
};

// The position after the checkpoint that was loaded; none: the start of the run. `samples`: those
// that the steps until the checkpoint have in this attempt (DataSets::samples_until).
inline RunPosition position_after(const std::optional<Resumed>& resumed, int64_t samples) {
  if (!resumed) return {};
  return {.first_step = resumed->step + 1,
          .shift = resumed->samples - samples,
          .samples_before = resumed->samples,
          .tokens_before = resumed->tokens};
}

}  // namespace trireme::train
