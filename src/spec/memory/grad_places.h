// SPDX-License-Identifier: Apache-2.0
// Gradients in the stash. With one micro-batch in a step, a layer's gradients are first written
// when the activations of the later layers are dead, and are last read at the end of the step,
// before the next forward. So they can share the memory of those activations, if it is large
// enough. The head's gradients cannot, because its forward computes them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "spec/memory/stash_layout.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::spec {

// Returns the place in the rank's `stash` of the leaf of each of its buckets; none: the leaf has
// separate memory.
std::vector<std::optional<SlotHome>> grad_places(const Plan&, const StashLayout& stash,
                                                 std::span<const BucketLayout>);

}  // namespace trireme::spec
