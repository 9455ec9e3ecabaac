// SPDX-License-Identifier: Apache-2.0
// Places for the frames of micro-batches, which stages of a rank share. Of stash_layout() only.
#pragma once

#include <span>

#include "spec/memory/stash_layout.h"

namespace trireme::spec {

// Fills frames, and the pools that are made of them. REQUIRES: layout.stages is filled in.
void place_frames(StashLayout& layout, std::span<const StashStage> stages,
                  const schedule::Schedule& schedule, int rank);

}  // namespace trireme::spec
