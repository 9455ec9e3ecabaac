// SPDX-License-Identifier: Apache-2.0
// StashPools: the memory of all slots of a stage, and the meter of what layers really take of it.
// Frames are handed to micro-batches as the schedule needs them; offsets inside a frame are fixed
// by spec::StashLayout.
//
// "Taken" is what a layer (or the engine, for x and dy) asked its Stash for; bytes count from that
// moment until the release. The meter is therefore independent of the layout's sums, and the two
// are compared.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device/memory.h"
#include "nn/layer.h"
#include "spec/stash_layout.h"

namespace trireme::engine {

class StashPools {
 public:
  StashPools(device::Device&, std::vector<spec::Facts> layers,
             const std::vector<spec::Recompute>& recompute, const spec::StashLayout& layout);

  // ---- a micro-batch's way through the stage
  void begin_forward(int microbatch);   // gives it frames. REQUIRES: it has none, and some are free
  void begin_backward(int microbatch);  // apart: gives it a b_to_w frame
  void end_backward_input(int microbatch);
  void end_backward_weight(int microbatch);  // it has no frames afterwards
  void end_evaluation(int microbatch);

  // ---- a layer's slots. `is_backward`: from recompute on.
  nn::Stash open(int layer, int microbatch, bool is_backward);
  // One slot, taken on behalf of the layer's neighbour.
  device::Tensor take(int layer, int microbatch, int slot, bool is_backward);
  // Counts what was taken since open(); called when a layer's work of one direction is queued.
  void settle(int layer, int microbatch, bool is_backward);

  // ---- ends of lives
  void release_dropped(int layer, int microbatch);       // after F: slots that come again
  void release_after_input(int layer, int microbatch);   // after B (apart)
  void release_after_weight(int layer, int microbatch);  // after W or BW

  const spec::StashLayout& layout() const { return layout_; }
  // Highest bytes that were taken at one time, by pool.
  int64_t peak(spec::Pool pool) const { return peak_[static_cast<size_t>(pool)]; }

 private:
  static constexpr size_t pool_count = static_cast<size_t>(spec::Pool::count);
  // Frames and marks of one micro-batch in flight.
  struct Flight {
    int microbatch = -1;  // -1: free
    std::array<int, pool_count> frame{};
    // By layer and slot: taken since the last settle, and where it is counted (pool + 1; 0
    // nowhere).
    std::vector<std::vector<uint8_t>> taken, counted_in;
  };

  Flight& flight(int microbatch);
  int free_frame(spec::Pool pool);
  const spec::SlotHome& home(int layer, int slot, bool is_backward) const;
  device::Tensor tensor(const Flight&, int layer, int slot, bool is_backward) const;
  void uncount(Flight&, int layer, int slot);

  std::vector<spec::Facts> layers_;
  spec::StashLayout layout_;
  device::Buffer buffer_;
  std::array<int64_t, pool_count> pool_begin_{};
  std::vector<Flight> flights_;
  std::array<std::vector<uint8_t>, pool_count> frame_used_;
  std::vector<std::vector<spec::Fate>> fates_;      // by layer and slot
  std::vector<std::vector<device::Tensor>> views_;  // by layer: what the last open() handed out
  std::array<int64_t, pool_count> live_{}, peak_{};
};

}  // namespace trireme::engine
