// SPDX-License-Identifier: Apache-2.0
// Where every slot of a rank lives. The stash is a handful of pools. Of some a micro-batch has a
// frame on each stage, as long as the schedule says (schedule/lives.h):
//
//   inputs     from its coming on as long as it is read: the stage's input
//   f_to_b     from F until B: kept slots that die in B
//   f_to_w     from F until W: kept slots that die in W, and those that a b_to_w slot overwrites
//   b_to_w     B and W apart: from B until W, what B writes for W
//   gradients  from its coming until W: the gradient of the stage's output, where another stage
//              makes it
//
// The stages of a rank share a pool: a frame takes the lowest place that is free for all its life.
// Stages of different sizes can leave gaps.
//
// The others serve one layer at a time and are as large as the largest layer needs:
//
//   b_to_w     merged backward: W of a layer follows its B at once
//   recompute  dropped slots, during the layer's F and again from R on. Where an F runs beside a
//              backward, one for each
//   stream     merged backward: the gradients that pass between layers, of even and of odd layers
//
// Engine and memory prediction both read this.
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

// One stage's slots: homes[layer of the stage][slot], while F runs, and from R (or B) on. They
// differ only for dropped slots that W reads.
struct StageStash {
  std::vector<std::vector<SlotHome>> in_forward, in_backward;
  // By layer: where its slots begin in the frames. Those of the layers behind it follow.
  std::vector<std::array<int64_t, pool_count>> layer_at;
  std::array<int64_t, pool_count> frame_bytes{};  // of one micro-batch
  bool input_until_w = false;                     // else until B
};

struct StashLayout {
  // Bytes taken, and how many of them are in use at most.
  struct Size {
    int64_t bytes = 0, peak = 0;
  };
  // Of one micro-batch on one stage: where its frames begin in each pool.
  struct Frames {
    std::array<int64_t, pool_count> at{};
    // The positions in the rank's program behind which the places of its input and of its output's
    // gradient are free; -1: from the start.
    int input_free_behind = -1, gradient_free_behind = -1;
  };

  bool is_merged = true;
  std::vector<StageStash> stages;
  std::vector<std::vector<Frames>> frames;  // by stage of the rank, then micro-batch
  std::array<Size, pool_count> pools;
  int64_t recompute_backward_at = 0;  // where a backward's frame begins in `recompute`
  int64_t stream_odd_at = 0;          // where that of odd layers begins in `stream`

  const Size& of(Pool pool) const { return pools[static_cast<size_t>(pool)]; }
  int64_t total_bytes() const;
  // What stages of different sizes leave between them.
  int64_t gap_bytes() const;
};

// What the slots of one layer take of a stage's frames, and of the pools that serve one layer at a
// time.
struct LayerStash {
  std::array<int64_t, pool_count> frame_bytes{};
  int64_t merged_b_to_w = 0, recompute_forward = 0, recompute_backward = 0, stream = 0;
};
struct LayerPlace {
  bool is_first = false;       // of its stage: its input lies in `inputs`
  bool gets_gradient = false;  // of its output, from another stage
};
// In training.
LayerStash layer_stash(const std::vector<Slot>&, Recompute, const LayerPlace&, bool is_merged);

// A stage of the rank.
struct StashStage {
  int number = 0;
  std::vector<Facts> layers;
  std::vector<Recompute> recompute;  // by layer
};
// `stages` are those that the rank runs, in rising order.
StashLayout stash_layout(std::span<const StashStage> stages, const schedule::Schedule&, int rank,
                         bool is_inference);

}  // namespace trireme::spec
