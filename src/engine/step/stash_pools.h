// SPDX-License-Identifier: Apache-2.0
// StashPools: the memory of all slots of a rank, and a meter of the slots that layers really take.
// spec::StashLayout fixes the place of every slot; the schedule fixes the order of calls.
//
// A slot is taken when a layer (or the engine, for x and dy) requests it from its Stash. Its bytes
// count from then on until the micro-batch has left the stage or, in pools that serve one layer at
// a time, until the layer is done. The meter is therefore independent of the layout's sums, and
// tests compare the two.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device/memory.h"
#include "nn/layer.h"
#include "spec/memory/stash_layout.h"

namespace trireme::engine {

class StashPools {
 public:
  // `layout` is the layout of `stages`. Calls name a stage by its index in `stages`.
  StashPools(device::Device&, std::vector<spec::StashStage> stages, spec::StashLayout layout);

  // ---- a micro-batch in a stage
  void begin(int stage, int microbatch);  // before its input arrives; does nothing if it has begun
  void end_backward_input(int stage, int microbatch);  // after B
  void end(int stage, int microbatch);                 // after W, BW or an evaluation

  // ---- a layer's slots. `is_backward`: from recompute on.
  nn::Stash open(int stage, int layer, int microbatch, bool is_backward);
  // Takes one slot for a neighbour of the layer.
  device::Tensor take(int stage, int layer, int microbatch, int slot, bool is_backward);
  // Counts the slots taken since open(). The stage calls it when a layer's work of one direction is
  // queued.
  void count_taken(int stage, int layer, int microbatch, bool is_backward);

  // ---- ends of slots in pools that serve one layer at a time
  void release_recomputed(int stage, int layer, int microbatch);
  void release_layer(int stage, int layer, int microbatch);

  // Returns memory in the first micro-batch's frames, for gradients that reuse it.
  device::Tensor memory_at(const spec::SlotHome&, const base::TensorSpec&) const;

  const spec::StashLayout& layout() const { return layout_; }
  // Returns the highest bytes of a pool that were taken at one time.
  int64_t peak(spec::Pool pool) const;
  // Bytes below the highest end of a taken slot that no peak accounts for, over all pools.
  int64_t gap_bytes() const;

 private:
  // What is measured separately: each pool, and both parts of pools that have two.
  enum class Cell : uint8_t {
    inputs,
    f_to_b,
    f_to_w,
    b_to_w,
    gradients,
    recompute_forward,
    recompute_backward,
    stream_even,
    stream_odd,
    count
  };
  struct Meter {
    int64_t live = 0, peak = 0;
  };
  // A micro-batch in flight on a stage.
  struct Flight {
    int microbatch = -1;  // -1: free
    // By layer and slot: taken since the last count_taken(), and the cell that counts it (cell + 1;
    // 0: none).
    std::vector<std::vector<uint8_t>> taken, counted_in;
  };
  struct PerStage {
    std::vector<spec::Facts> layers;
    std::vector<std::vector<spec::Fate>> fates;      // by layer and slot
    std::vector<std::vector<device::Tensor>> views;  // by layer: of the last open()
    std::vector<Flight> flights;
  };

  PerStage& at(int stage) { return stages_[static_cast<size_t>(stage)]; }
  Flight* find(int stage, int microbatch);
  Flight& flight(int stage, int microbatch);
  Cell cell_of(int layer, spec::Pool pool, bool is_backward) const;
  const spec::SlotHome& home(int stage, int layer, int slot, bool is_backward) const;
  // The first byte of a slot, from the start of its pool.
  int64_t offset_of(int stage, int layer, int microbatch, int slot, bool is_backward) const;
  device::Tensor tensor(int stage, int layer, int microbatch, int slot, bool is_backward) const;
  void uncount(int stage, int layer, Flight&, const std::vector<Cell>& cells);

  spec::StashLayout layout_;
  const bool runs_pairs_;  // an F runs beside a backward
  device::Buffer buffer_;
  std::array<int64_t, spec::pool_count> pool_begin_{};
  std::vector<PerStage> stages_;
  std::array<Meter, static_cast<size_t>(Cell::count)> meters_{};
  std::array<int64_t, spec::pool_count> highest_end_{};  // of a taken slot, from the pool's start
};

}  // namespace trireme::engine
