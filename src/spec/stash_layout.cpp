// SPDX-License-Identifier: Apache-2.0
#include "spec/stash_layout.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::spec {
namespace {

// Gives out offsets in the frames of all pools. A pool that serves one layer at a time starts again
// with each layer.
class Allocator {
 public:
  explicit Allocator(StashLayout& layout) : layout_(layout) {}

  SlotHome place(Pool pool, int64_t bytes) {
    int64_t& used = used_[static_cast<size_t>(pool)];
    const SlotHome home{pool, used};
    used += bytes;
    int64_t& frame = layout_.pools[static_cast<size_t>(pool)].bytes;
    frame = std::max(frame, used);
    return home;
  }
  void next_layer() {
    used_[static_cast<size_t>(Pool::recompute)] = 0;
    used_[static_cast<size_t>(Pool::stream)] = 0;
    if (layout_.is_merged) used_[static_cast<size_t>(Pool::b_to_w)] = 0;
  }

 private:
  StashLayout& layout_;
  std::array<int64_t, static_cast<size_t>(Pool::count)> used_{};
};

bool is_overwritten(const std::vector<Slot>& slots, int index) {
  return std::any_of(slots.begin(), slots.end(),
                     [index](const Slot& slot) { return slot.replaces == index; });
}

}  // namespace

std::string_view name_of(Pool pool) {
  constexpr std::array<std::string_view, static_cast<size_t>(Pool::count)> names = {
      "f_to_b", "f_to_w", "b_to_w", "recompute", "stream"};
  TRIREME_CHECK(pool < Pool::count, "pool {}", static_cast<int>(pool));
  return names[static_cast<size_t>(pool)];
}

int64_t StashLayout::total_bytes() const {
  int64_t bytes = 0;
  for (const Frames& frames : pools) bytes += frames.total();
  return bytes;
}

StashLayout stash_layout(std::span<const Facts> layers, std::span<const Recompute> recompute,
                         const schedule::InFlight& in_flight, const StashUse& use) {
  TRIREME_CHECK(layers.size() == recompute.size(), "{} layers, {} policies", layers.size(),
                recompute.size());
  StashLayout layout;
  const bool is_merged = use.is_merged;
  layout.is_merged = is_merged;
  const auto frames = [&layout](Pool pool) -> int& {
    return layout.pools[static_cast<size_t>(pool)].count;
  };
  frames(Pool::f_to_b) = in_flight.f_to_b;
  frames(Pool::f_to_w) = in_flight.f_to_w;
  frames(Pool::b_to_w) = is_merged ? 1 : in_flight.b_to_w;
  frames(Pool::recompute) = 1;
  frames(Pool::stream) = is_merged ? 2 : 0;

  Allocator allocator(layout);
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const std::vector<Slot>& slots = layers[layer].stash;
    std::vector<SlotHome> forward(slots.size()), backward(slots.size());
    for (int index = 0; index < static_cast<int>(slots.size()); ++index) {
      const Slot& slot = slots[static_cast<size_t>(index)];
      const bool is_unused = use.is_inference && (slot.life == Life::b_to_w || slot.backward_only);
      const int64_t bytes = is_unused ? 0 : base::bytes_of(slot.spec);
      SlotHome& f = forward[static_cast<size_t>(index)];
      SlotHome& b = backward[static_cast<size_t>(index)];
      if (slot.life == Life::b_to_w) {
        if (slot.replaces >= 0) continue;
        const bool in_stream = is_merged && index == slot_dy;
        f = b = allocator.place(in_stream ? Pool::stream : Pool::b_to_w, bytes);
        continue;
      }
      const bool until_w = slot.life == Life::f_to_w || is_overwritten(slots, index);
      if (is_kept(slot, index, recompute[layer])) {
        f = b = allocator.place(until_w ? Pool::f_to_w : Pool::f_to_b, bytes);
        continue;
      }
      f = b = allocator.place(Pool::recompute, bytes);
      if (until_w && !is_merged) b = allocator.place(Pool::b_to_w, bytes);
    }
    for (size_t index = 0; index < slots.size(); ++index) {
      const int replaced = slots[index].replaces;
      if (replaced < 0) continue;
      forward[index] = forward[static_cast<size_t>(replaced)];
      backward[index] = backward[static_cast<size_t>(replaced)];
    }
    layout.in_forward.push_back(std::move(forward));
    layout.in_backward.push_back(std::move(backward));
    allocator.next_layer();
  }
  return layout;
}

}  // namespace trireme::spec
