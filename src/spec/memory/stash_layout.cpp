// SPDX-License-Identifier: Apache-2.0
#include "spec/memory/stash_layout.h"

#include <algorithm>

#include "base/check.h"
#include "schedule/lives.h"
#include "spec/memory/stash_frames.h"

namespace trireme::spec {
namespace {

bool is_overwritten(const std::vector<Slot>& slots, int index) {
  return std::any_of(slots.begin(), slots.end(),
                     [index](const Slot& slot) { return slot.replaces == index; });
}

// Places the slots of stages, one stage after the other.
class SlotPlacer {
 public:
  SlotPlacer(bool is_merged, bool is_inference)
      : is_merged_(is_merged), is_inference_(is_inference) {}

  StageStash place(const StashStage& stage, bool is_last_stage) {
    TRIREME_CHECK(stage.layers.size() == stage.recompute.size(), "{} layers, {} policies",
                  stage.layers.size(), stage.recompute.size());
    stage_ = {};
    for (size_t layer = 0; layer < stage.layers.size(); ++layer) {
      place_layer(stage.layers[layer].stash, stage.recompute[layer],
                  {.is_first = layer == 0,
                   .gets_gradient = layer + 1 == stage.layers.size() && !is_last_stage});
    }
    return std::move(stage_);
  }
  LayerStash place_one(const std::vector<Slot>& slots, Recompute recompute,
                       const LayerPlace& place) {
    place_layer(slots, recompute, place);
    return {stage_.frame_bytes, merged_b_to_w, recompute_forward, recompute_backward, stream[0]};
  }
  // The maximum over layers.
  int64_t merged_b_to_w = 0, recompute_forward = 0, recompute_backward = 0;
  std::array<int64_t, 2> stream = {};  // of even and odd layers

 private:
  void place_layer(const std::vector<Slot>& slots, Recompute recompute, const LayerPlace& place) {
    const size_t layer = stage_.layer_at.size();
    int64_t b_to_w = 0, in_forward = 0, in_backward = 0;  // in pools that serve one layer at a time
    stage_.layer_at.push_back(stage_.frame_bytes);
    std::vector<SlotHome> forward(slots.size()), backward(slots.size());
    const auto in_frame = [&](Pool pool, int64_t bytes) {
      int64_t& used = stage_.frame_bytes[index_of(pool)];
      used += bytes;
      return SlotHome{pool, used - bytes};
    };
    const auto in_layer = [](Pool pool, int64_t& used, int64_t bytes) {
      used += bytes;
      return SlotHome{pool, used - bytes};
    };
    for (int index = 0; index < static_cast<int>(slots.size()); ++index) {
      const Slot& slot = slots[static_cast<size_t>(index)];
      const bool is_unused = is_inference_ && (slot.life == Life::b_to_w || slot.backward_only);
      const int64_t bytes = is_unused ? 0 : base::bytes_of(slot.spec);
      SlotHome& f = forward[static_cast<size_t>(index)];
      SlotHome& b = backward[static_cast<size_t>(index)];
      if (slot.life == Life::b_to_w) {
        if (slot.replaces >= 0) continue;
        if (index == slot_dy && place.gets_gradient) {
          f = b = in_frame(Pool::gradients, bytes);
        } else if (!is_merged_) {
          f = b = in_frame(Pool::b_to_w, bytes);
        } else if (index == slot_dy) {
          int64_t& largest = stream[layer % 2];
          largest = std::max(largest, bytes);
          f = b = {Pool::stream, 0};
        } else {
          f = b = in_layer(Pool::b_to_w, b_to_w, bytes);
        }
        continue;
      }
      const bool until_w = slot.life == Life::f_to_w || is_overwritten(slots, index);
      if (index == slot_x && place.is_first) {
        stage_.input_until_w = until_w;
        f = b = in_frame(Pool::inputs, bytes);
        continue;
      }
      if (is_kept(slot, index, recompute)) {
        f = b = in_frame(until_w ? Pool::f_to_w : Pool::f_to_b, bytes);
        continue;
      }
      f = slot.skips_f ? SlotHome{Pool::recompute, 0}
                       : in_layer(Pool::recompute, in_forward, bytes);
      b = until_w && !is_merged_ ? in_frame(Pool::b_to_w, bytes)
                                 : in_layer(Pool::recompute, in_backward, bytes);
    }
    for (size_t index = 0; index < slots.size(); ++index) {
      const int replaced = slots[index].replaces;
      if (replaced < 0) continue;
      forward[index] = forward[static_cast<size_t>(replaced)];
      backward[index] = backward[static_cast<size_t>(replaced)];
    }
    stage_.in_forward.push_back(std::move(forward));
    stage_.in_backward.push_back(std::move(backward));
    merged_b_to_w = std::max(merged_b_to_w, b_to_w);
    recompute_forward = std::max(recompute_forward, in_forward);
    recompute_backward = std::max(recompute_backward, in_backward);
  }

  const bool is_merged_, is_inference_;
  StageStash stage_;
};

}  // namespace

std::string_view name_of(Pool pool) {
  constexpr std::array<std::string_view, pool_count> names = {
      "inputs", "f_to_b", "f_to_w", "b_to_w", "gradients", "recompute", "stream"};
  TRIREME_CHECK(pool < Pool::count, "pool {}", static_cast<int>(pool));
  return names[index_of(pool)];
}

int64_t StashLayout::total_bytes() const {
  int64_t bytes = 0;
  for (const Size& size : pools) bytes += size.bytes;
  return bytes;
}

int64_t StashLayout::gap_bytes() const {
  int64_t bytes = 0;
  for (const Size& size : pools) bytes += size.bytes - size.peak;
  return bytes;
}

LayerStash layer_stash(const std::vector<Slot>& slots, Recompute recompute, const LayerPlace& place,
                       bool is_merged) {
  return SlotPlacer(is_merged, false).place_one(slots, recompute, place);
}

StashLayout stash_layout(std::span<const StashStage> stages, const schedule::Schedule& schedule,
                         int rank, bool is_inference) {
  const std::vector<schedule::Action>& program = schedule.program[static_cast<size_t>(rank)];
  StashLayout layout;
  layout.is_merged = !schedule::splits_backward(program);
  SlotPlacer placer(layout.is_merged, is_inference);
  for (const StashStage& stage : stages) {
    layout.stages.push_back(placer.place(stage, stage.number + 1 == schedule.stages()));
  }
  place_frames(layout, stages, schedule, rank);

  const auto serves_a_layer = [&layout](Pool pool, int64_t bytes) {
    layout.pools[index_of(pool)] = {bytes, bytes};
  };
  if (layout.is_merged) serves_a_layer(Pool::b_to_w, placer.merged_b_to_w);
  // F writes every dropped slot that B needs, unless it skips it (Slot::skips_f).
  const int64_t forward = placer.recompute_forward;
  const bool runs_two = schedule::has_pairs(program);
  layout.recompute_backward_at = runs_two ? forward : 0;
  const int64_t backward = placer.recompute_backward;
  serves_a_layer(Pool::recompute, runs_two ? forward + backward : std::max(forward, backward));
  layout.stream_odd_at = placer.stream[0];
  serves_a_layer(Pool::stream, placer.stream[0] + placer.stream[1]);
  return layout;
}

}  // namespace trireme::spec
