// SPDX-License-Identifier: Apache-2.0
// The place of every slot of a rank. The stash consists of pools. In some of them a micro-batch has
// a frame on each stage, whose lifetime follows from the schedule (schedule/lives.h):
//
//   inputs     from its arrival until its last use: the stage's input
//   f_to_b     from F until B: kept slots that are last read in B
//   f_to_w     from F until W: kept slots that are last read in W, and those that a b_to_w slot
//              overwrites
//   b_to_w     split backward: from B until W, the slots that B writes for W
//   gradients  from its arrival until W: the gradient of the stage's output, if another stage
//              computes it
//
// The stages of a rank share a pool: a frame gets the lowest place that is free for all its life.
// Stages of different sizes can leave gaps.
//
// The other pools serve one layer at a time and are as large as the largest layer needs:
//
//   b_to_w     merged backward: W of a layer follows its B immediately
//   recompute  dropped slots, during the layer's F and again from R on. If an F can overlap a
//              backward, one for each
//   stream     merged backward: the gradients between layers, of even and of odd layers
//
// Both the engine and the memory prediction use this layout.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/schedule.h"
#include "spec/facts/facts.h"

namespace trireme::spec {

enum class Pool : uint8_t { inputs, f_to_b, f_to_w, b_to_w, gradients, recompute, stream, count };
constexpr auto pool_count = static_cast<size_t>(Pool::count);
constexpr size_t index_of(Pool pool) { return static_cast<size_t>(pool); }
std::string_view name_of(Pool);

struct SlotHome {
  Pool pool = Pool::f_to_b;
  int64_t offset = 0;  // bytes from the start of a frame
};

// The slots of one stage: homes[layer of the stage][slot], during F, and from R (or B) on. The two
// differ only for dropped slots that W reads.
struct StageStash {
  std::vector<std::vector<SlotHome>> in_forward, in_backward;
  // By layer: where its slots begin in the frames. The slots of later layers follow.
  std::vector<std::array<int64_t, pool_count>> layer_at;
  std::array<int64_t, pool_count> frame_bytes{};  // of one micro-batch
  bool input_until_w = false;                     // the input lives until W, otherwise until B
};

struct StashLayout {
  // Allocated bytes, and the maximum of those in use.
  struct Size {
    int64_t bytes = 0, peak = 0;
  };
  // Where the frames of one micro-batch on one stage begin in each pool.
  struct Frames {
    std::array<int64_t, pool_count> at{};
    // The positions in the rank's program after which the places of its input and of its output's
    // gradient are free; -1: from the start.
    int input_free_behind = -1, gradient_free_behind = -1;
  };

  bool is_merged = true;
  std::vector<StageStash> stages;
  std::vector<std::vector<Frames>> frames;  // by stage of the rank, then micro-batch
  std::array<Size, pool_count> pools;
  int64_t recompute_backward_at = 0;  // where a backward's frame begins in `recompute`
  int64_t stream_odd_at = 0;          // where the frame of odd layers begins in `stream`

  const Size& of(Pool pool) const { return pools[static_cast<size_t>(pool)]; }
  int64_t total_bytes() const;
  // Returns the bytes of the gaps between frames of stages of different sizes.
  int64_t gap_bytes() const;
};

// The bytes of one layer's slots in a stage's frames, and in the pools that serve one layer at a
// time.
struct LayerStash {
  std::array<int64_t, pool_count> frame_bytes{};
  int64_t merged_b_to_w = 0, recompute_forward = 0, recompute_backward = 0, stream = 0;
};
struct LayerPlace {
  bool is_first = false;       // of its stage: its input lies in `inputs`
  bool gets_gradient = false;  // it receives the gradient of its output from another stage
};
// For training, not for inference.
LayerStash layer_stash(const std::vector<Slot>&, Recompute, const LayerPlace&, bool is_merged);

// A stage of the rank.
struct StashStage {
  int number = 0;
  std::vector<Facts> layers;
  std::vector<Recompute> recompute;  // by layer
};
// `stages`: the stages that the rank runs, in ascending order.
StashLayout stash_layout(std::span<const StashStage> stages, const schedule::Schedule&, int rank,
                         bool is_inference);

}  // namespace trireme::spec
