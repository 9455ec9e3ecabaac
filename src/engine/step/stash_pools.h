// SPDX-License-Identifier: Apache-2.0
// StashPools: the memory of all slots of a rank, and the meter of what layers really take of it.
// Where a slot lies is fixed by spec::StashLayout; the order of calls is the schedule's.
//
// "Taken" is what a layer (or the engine, for x and dy) asked its Stash for; bytes count from that
// moment until the frame, or in pools that serve one layer at a time the layer, is done. The meter
// is therefore independent of the layout's sums, and the two are compared.
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
  // `layout` is that of `stages`. Stages are numbered by their place among them.
  StashPools(device::Device&, std::vector<spec::StashStage> stages, spec::StashLayout layout);

  // ---- a micro-batch's way through a stage
  void begin(int stage, int microbatch);  // its input may come; nothing to do if it has begun
  void end_backward_input(int stage, int microbatch);  // after B
  void end(int stage, int microbatch);                 // after W, BW or an evaluation

  // ---- a layer's slots. `is_backward`: from recompute on.
  nn::Stash open(int stage, int layer, int microbatch, bool is_backward);
  // One slot, taken on behalf of the layer's neighbour.
  device::Tensor take(int stage, int layer, int microbatch, int slot, bool is_backward);
  // Counts what was taken since open(); called when a layer's work of one direction is queued.
  void settle(int stage, int layer, int microbatch, bool is_backward);

  // ---- ends of lives in pools that serve one layer at a time
  void release_recomputed(int stage, int layer, int microbatch);
  void release_layer(int stage, int layer, int microbatch);

  // Memory of the first micro-batch's frames, for gradients that take it over.
  device::Tensor under(const spec::SlotHome&, const base::TensorSpec&) const;

  const spec::StashLayout& layout() const { return layout_; }
  // Highest bytes that were taken at one time, by pool.
  int64_t peak(spec::Pool pool) const;
  // Bytes below the highest end of a taken slot that no peak accounts for, over all pools.
  int64_t gap_bytes() const;

 private:
  // What is measured apart: each pool, and each half of those that have two.
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
  // A micro-batch on a stage.
  struct Flight {
    int microbatch = -1;  // -1: free
    // By layer and slot: taken since the last settle, and where it is counted (cell + 1; 0
    // nowhere).
    std::vector<std::vector<uint8_t>> taken, counted_in;
  };
  struct PerStage {
    std::vector<spec::Facts> layers;
    std::vector<std::vector<spec::Fate>> fates;      // by layer and slot
    std::vector<std::vector<device::Tensor>> views;  // by layer: what the last open() handed out
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
  const bool runs_two_;  // an F beside a backward
  device::Buffer buffer_;
  std::array<int64_t, spec::pool_count> pool_begin_{};
  std::vector<PerStage> stages_;
  std::array<Meter, static_cast<size_t>(Cell::count)> meters_{};
  std::array<int64_t, spec::pool_count> highest_end_{};  // of a taken slot, from the pool's start
};

}  // namespace trireme::engine
