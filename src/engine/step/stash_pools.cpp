// SPDX-License-Identifier: Apache-2.0
#include "engine/step/stash_pools.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::engine {

using spec::Pool;

StashPools::StashPools(device::Device& device, std::vector<spec::StashStage> stages,
                       spec::StashLayout layout)
    : layout_(std::move(layout)),
      runs_pairs_(layout_.recompute_backward_at > 0),
      buffer_(device, device::Mem::stash, layout_.total_bytes(), "stash pools") {
  int64_t begin = 0;
  for (size_t pool = 0; pool < spec::pool_count; ++pool) {
    pool_begin_[pool] = begin;
    begin += layout_.pools[pool].bytes;
  }
  for (spec::StashStage& stage : stages) {
    PerStage& to = stages_.emplace_back();
    to.layers = std::move(stage.layers);
    for (size_t layer = 0; layer < to.layers.size(); ++layer) {
      const std::vector<spec::Slot>& slots = to.layers[layer].stash;
      to.views.emplace_back(slots.size());
      to.fates.emplace_back(slots.size());
      for (size_t slot = 0; slot < slots.size(); ++slot) {
        to.fates[layer][slot] =
            spec::fate_of(slots[slot], static_cast<int>(slot), stage.recompute[layer]);
      }
    }
  }
}

void StashPools::begin(int stage, int microbatch) {
  if (find(stage, microbatch) != nullptr) return;
  std::vector<Flight>& flights = at(stage).flights;
  auto free = std::find_if(flights.begin(), flights.end(),
                           [](const Flight& f) { return f.microbatch < 0; });
  if (free == flights.end()) {
    Flight& added = flights.emplace_back();
    for (const spec::Facts& layer : at(stage).layers) {
      added.taken.emplace_back(layer.stash.size());
      added.counted_in.emplace_back(layer.stash.size());
    }
    free = flights.end() - 1;
  }
  free->microbatch = microbatch;
}

void StashPools::end_backward_input(int stage, int microbatch) {
  Flight& f = flight(stage, microbatch);
  for (size_t layer = 0; layer < at(stage).layers.size(); ++layer) {
    uncount(stage, static_cast<int>(layer), f, {Cell::f_to_b});
    const bool is_input_read = layout_.stages[static_cast<size_t>(stage)].input_until_w;
    if (!is_input_read) uncount(stage, static_cast<int>(layer), f, {Cell::inputs});
  }
}

void StashPools::end(int stage, int microbatch) {
  Flight& f = flight(stage, microbatch);
  for (size_t layer = 0; layer < at(stage).layers.size(); ++layer) {
    uncount(
        stage, static_cast<int>(layer), f,
        {Cell::inputs, Cell::f_to_b, Cell::f_to_w, Cell::b_to_w, Cell::gradients,
         Cell::recompute_forward, Cell::recompute_backward, Cell::stream_even, Cell::stream_odd});
  }
  f.microbatch = -1;
}

nn::Stash StashPools::open(int stage, int layer, int microbatch, bool is_backward) {
  Flight& f = flight(stage, microbatch);
  const auto l = static_cast<size_t>(layer);
  std::vector<device::Tensor>& views = at(stage).views[l];
  for (size_t slot = 0; slot < views.size(); ++slot) {
    views[slot] = tensor(stage, layer, microbatch, static_cast<int>(slot), is_backward);
  }
  return {views, f.taken[l], at(stage).fates[l]};
}

device::Tensor StashPools::take(int stage, int layer, int microbatch, int slot, bool is_backward) {
  flight(stage, microbatch).taken[static_cast<size_t>(layer)][static_cast<size_t>(slot)] = 1;
  count_taken(stage, layer, microbatch, is_backward);
  return tensor(stage, layer, microbatch, slot, is_backward);
}

void StashPools::count_taken(int stage, int layer, int microbatch, bool is_backward) {
  Flight& f = flight(stage, microbatch);
  const auto l = static_cast<size_t>(layer);
  const std::vector<spec::Slot>& slots = at(stage).layers[l].stash;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (f.taken[l][slot] == 0) continue;
    f.taken[l][slot] = 0;
    const spec::Slot& spec = slots[slot];
    // A slot that overwrites another takes no more memory as long as the other one is live.
    if (spec.replaces >= 0 && f.counted_in[l][static_cast<size_t>(spec.replaces)] != 0) continue;
    if (f.counted_in[l][slot] != 0) continue;
    const Pool pool = home(stage, layer, static_cast<int>(slot), is_backward).pool;
    const auto cell = static_cast<size_t>(cell_of(layer, pool, is_backward));
    f.counted_in[l][slot] = static_cast<uint8_t>(cell + 1);
    Meter& meter = meters_[cell];
    meter.live += base::bytes_of(spec.spec);
    meter.peak = std::max(meter.peak, meter.live);
    const int64_t begin = offset_of(stage, layer, microbatch, static_cast<int>(slot), is_backward);
    int64_t& highest = highest_end_[spec::index_of(pool)];
    highest = std::max(highest, begin + base::bytes_of(spec.spec));
  }
}

void StashPools::release_recomputed(int stage, int layer, int microbatch) {
  uncount(stage, layer, flight(stage, microbatch),
          {Cell::recompute_forward, Cell::recompute_backward});
}

void StashPools::release_layer(int stage, int layer, int microbatch) {
  Flight& f = flight(stage, microbatch);
  uncount(stage, layer, f,
          {Cell::recompute_forward, Cell::recompute_backward, Cell::stream_even, Cell::stream_odd});
  if (layout_.is_merged) uncount(stage, layer, f, {Cell::b_to_w});
}

int64_t StashPools::peak(Pool pool) const {
  const auto of = [this](Cell cell) { return meters_[static_cast<size_t>(cell)].peak; };
  switch (pool) {
    case Pool::inputs:
      return of(Cell::inputs);
    case Pool::f_to_b:
      return of(Cell::f_to_b);
    case Pool::f_to_w:
      return of(Cell::f_to_w);
    case Pool::b_to_w:
      return of(Cell::b_to_w);
    case Pool::gradients:
      return of(Cell::gradients);
    case Pool::recompute:
      return of(Cell::recompute_forward) + of(Cell::recompute_backward);
    case Pool::stream:
      return of(Cell::stream_even) + of(Cell::stream_odd);
    case Pool::count:
      break;
  }
  TRIREME_CHECK(false, "pool {}", static_cast<int>(pool));
}

int64_t StashPools::gap_bytes() const {
  int64_t bytes = 0;
  for (size_t pool = 0; pool < spec::pool_count; ++pool) {
    bytes += highest_end_[pool] - peak(static_cast<Pool>(pool));
  }
  return bytes;
}

StashPools::Flight* StashPools::find(int stage, int microbatch) {
  std::vector<Flight>& flights = at(stage).flights;
  const auto found = std::find_if(flights.begin(), flights.end(), [microbatch](const Flight& f) {
    return f.microbatch == microbatch;
  });
  return found == flights.end() ? nullptr : &*found;
}

StashPools::Flight& StashPools::flight(int stage, int microbatch) {
  Flight* found = find(stage, microbatch);
  TRIREME_CHECK(microbatch >= 0 && found != nullptr, "micro-batch {} is not in flight", microbatch);
  return *found;
}

StashPools::Cell StashPools::cell_of(int layer, Pool pool, bool is_backward) const {
  switch (pool) {
    case Pool::inputs:
      return Cell::inputs;
    case Pool::f_to_b:
      return Cell::f_to_b;
    case Pool::f_to_w:
      return Cell::f_to_w;
    case Pool::b_to_w:
      return Cell::b_to_w;
    case Pool::gradients:
      return Cell::gradients;
    case Pool::recompute:
      return is_backward && runs_pairs_ ? Cell::recompute_backward : Cell::recompute_forward;
    case Pool::stream:
      return layer % 2 == 0 ? Cell::stream_even : Cell::stream_odd;
    case Pool::count:
      break;
  }
  TRIREME_CHECK(false, "pool {}", static_cast<int>(pool));
}

const spec::SlotHome& StashPools::home(int stage, int layer, int slot, bool is_backward) const {
  const spec::StageStash& stash = layout_.stages[static_cast<size_t>(stage)];
  const auto& homes = is_backward ? stash.in_backward : stash.in_forward;
  return homes[static_cast<size_t>(layer)][static_cast<size_t>(slot)];
}

int64_t StashPools::offset_of(int stage, int layer, int microbatch, int slot,
                              bool is_backward) const {
  const spec::SlotHome& where = home(stage, layer, slot, is_backward);
  if (where.pool == Pool::stream && layer % 2 == 1) return layout_.stream_odd_at + where.offset;
  if (where.pool == Pool::recompute && is_backward) {
    return layout_.recompute_backward_at + where.offset;
  }
  const auto& frames = layout_.frames[static_cast<size_t>(stage)][static_cast<size_t>(microbatch)];
  return frames.at[spec::index_of(where.pool)] + where.offset;
}

device::Tensor StashPools::tensor(int stage, int layer, int microbatch, int slot,
                                  bool is_backward) const {
  const PerStage& of = stages_[static_cast<size_t>(stage)];
  const base::TensorSpec& spec =
      of.layers[static_cast<size_t>(layer)].stash[static_cast<size_t>(slot)].spec;
  if (spec.shape.ndim() == 0) return {};
  const size_t pool = spec::index_of(home(stage, layer, slot, is_backward).pool);
  const int64_t offset = offset_of(stage, layer, microbatch, slot, is_backward);
  return device::view_of(buffer_.data() + pool_begin_[pool] + offset, spec);
}

device::Tensor StashPools::memory_at(const spec::SlotHome& home,
                                     const base::TensorSpec& spec) const {
  const auto pool = static_cast<size_t>(home.pool);
  const int64_t frame = layout_.frames.front().front().at[pool];
  return device::view_of(buffer_.data() + pool_begin_[pool] + frame + home.offset, spec);
}

void StashPools::uncount(int stage, int layer, Flight& f, const std::vector<Cell>& cells) {
  const auto l = static_cast<size_t>(layer);
  const std::vector<spec::Slot>& slots = at(stage).layers[l].stash;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    const uint8_t counted = f.counted_in[l][slot];
    if (counted == 0) continue;
    const auto cell = static_cast<Cell>(counted - 1U);
    if (std::find(cells.begin(), cells.end(), cell) == cells.end()) continue;
    meters_[counted - 1U].live -= base::bytes_of(slots[slot].spec);
    f.counted_in[l][slot] = 0;
  }
}

}  // namespace trireme::engine
