// SPDX-License-Identifier: Apache-2.0
// Gradients in the stash. With one micro-batch in a step, a layer's gradients begin when nobody
// needs any more what the layers behind it kept for their backward, and end with the step, before
// the next forward. So they need no memory of their own, as far as that has room for them: those of
// the head, which its forward makes, do.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "spec/parallel/data_parallel.h"
#include "spec/memory/stash_layout.h"

namespace trireme::spec {

// Where the leaf of each of a rank's buckets lies; none: in memory of its own. `stash` is that of
// the rank.
std::vector<std::optional<SlotHome>> grad_places(const Plan&, const StashLayout& stash,
                                                 std::span<const BucketLayout>);

}  // namespace trireme::spec
