// SPDX-License-Identifier: Apache-2.0
// Places the frames of micro-batches, which the stages of a rank share. Used by stash_layout()
// only.
#pragma once

#include <span>

#include "spec/memory/stash_layout.h"

namespace trireme::spec {

// Fills in layout.frames and the pools that consist of frames. REQUIRES: layout.stages is filled
// in.
void place_frames(StashLayout& layout, std::span<const StashStage> stages,
                  const schedule::Schedule& schedule, int rank);

}  // namespace trireme::spec
