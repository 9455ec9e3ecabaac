// SPDX-License-Identifier: Apache-2.0
// Where every slot of a stage lives. The stash is a handful of pools, each made of equal frames:
//
//   f_to_b     a frame per micro-batch between F and B: kept slots that die in B
//   f_to_w     a frame per micro-batch between F and W: kept slots that die in W, and those a
//   b_to_w slot overwrites b_to_w     what B writes for W. Merged backward: one frame, as large as
//   the largest layer needs, since W of a layer
//              follows its B at once. Apart: a frame per micro-batch between B and W, for all
//              layers
//   recompute  one frame, as large as the largest layer needs: dropped slots, during that layer's F
//   and again from R on stream     two frames for the gradients that pass between layers (merged
//   backward only): layer l uses frame l mod 2
//
// Engine and memory prediction both read this.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/schedule.h"
#include "spec/facts.h"

namespace trireme::spec {

enum class Pool : uint8_t { f_to_b, f_to_w, b_to_w, recompute, stream, count };
std::string_view name_of(Pool);

struct SlotHome {
  Pool pool = Pool::f_to_b;
  int64_t offset = 0;  // bytes from the start of a frame
};

struct StashLayout {
  struct Frames {
    int64_t bytes = 0;  // of one frame
    int count = 0;
    int64_t total() const { return bytes * count; }
  };

  bool is_merged = true;
  std::array<Frames, static_cast<size_t>(Pool::count)> pools;
  // homes[layer of the stage][slot]: while F runs, and from R (or B) on. They differ only for
  // dropped slots that W reads.
  std::vector<std::vector<SlotHome>> in_forward, in_backward;

  const Frames& of(Pool pool) const { return pools[static_cast<size_t>(pool)]; }
  int64_t total_bytes() const;
};

struct StashUse {
  bool is_merged = true;      // BW in one action; otherwise B and W apart
  bool is_inference = false;  // no backward: what only it reads has no home
};

// `layers` and `recompute` go together, one entry per layer of the stage, in order.
StashLayout stash_layout(std::span<const Facts> layers, std::span<const Recompute> recompute,
                         const schedule::InFlight&, const StashUse&);

}  // namespace trireme::spec
