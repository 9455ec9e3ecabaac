// SPDX-License-Identifier: Apache-2.0
#include "engine/stash_pools.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::engine {

using spec::Pool;

StashPools::StashPools(device::Device& device, std::vector<spec::Facts> layers,
                       const std::vector<spec::Recompute>& recompute,
                       const spec::StashLayout& layout)
    : layers_(std::move(layers)),
      layout_(layout),
      buffer_(device, device::Mem::stash, layout.total_bytes(), "stash pools") {
  int64_t begin = 0;
  for (size_t pool = 0; pool < pool_count; ++pool) {
    pool_begin_[pool] = begin;
    begin += layout_.pools[pool].total();
    frame_used_[pool].assign(static_cast<size_t>(layout_.pools[pool].count), 0);
  }
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const std::vector<spec::Slot>& slots = layers_[layer].stash;
    views_.emplace_back(slots.size());
    fates_.emplace_back(slots.size());
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      fates_[layer][slot] = spec::fate_of(slots[slot], static_cast<int>(slot), recompute[layer]);
    }
  }
  flights_.resize(static_cast<size_t>(
      std::max({layout_.of(Pool::f_to_b).count, layout_.of(Pool::f_to_w).count, 1})));
  for (Flight& f : flights_) {
    for (const spec::Facts& layer : layers_) {
      f.taken.emplace_back(layer.stash.size());
      f.counted_in.emplace_back(layer.stash.size());
    }
  }
}

void StashPools::begin_forward(int microbatch) {
  for (Flight& f : flights_) {
    if (f.microbatch >= 0) continue;
    f.microbatch = microbatch;
    f.frame.fill(0);
    for (const Pool pool : {Pool::f_to_b, Pool::f_to_w}) {
      f.frame[static_cast<size_t>(pool)] = free_frame(pool);
    }
    return;
  }
  TRIREME_CHECK(false, "no frame for micro-batch {}: {} are in flight", microbatch,
                flights_.size());
}

void StashPools::begin_backward(int microbatch) {
  if (layout_.is_merged) return;
  flight(microbatch).frame[static_cast<size_t>(Pool::b_to_w)] = free_frame(Pool::b_to_w);
}

void StashPools::end_backward_input(int microbatch) {
  const Flight& f = flight(microbatch);
  constexpr auto pool = static_cast<size_t>(Pool::f_to_b);
  frame_used_[pool][static_cast<size_t>(f.frame[pool])] = 0;
}

void StashPools::end_backward_weight(int microbatch) {
  Flight& f = flight(microbatch);
  for (const Pool pool : {Pool::f_to_w, Pool::b_to_w}) {
    if (pool == Pool::b_to_w && layout_.is_merged) continue;
    const auto at = static_cast<size_t>(pool);
    frame_used_[at][static_cast<size_t>(f.frame[at])] = 0;
  }
  f.microbatch = -1;
}

void StashPools::end_evaluation(int microbatch) {
  for (int layer = 0; layer < static_cast<int>(layers_.size()); ++layer) {
    release_after_weight(layer, microbatch);
  }
  end_backward_input(microbatch);
  constexpr auto pool = static_cast<size_t>(Pool::f_to_w);
  Flight& f = flight(microbatch);
  frame_used_[pool][static_cast<size_t>(f.frame[pool])] = 0;
  f.microbatch = -1;
}

nn::Stash StashPools::open(int layer, int microbatch, bool is_backward) {
  Flight& f = flight(microbatch);
  const auto at = static_cast<size_t>(layer);
  for (size_t slot = 0; slot < views_[at].size(); ++slot) {
    views_[at][slot] = tensor(f, layer, static_cast<int>(slot), is_backward);
  }
  return {views_[at], f.taken[at], fates_[at]};
}

device::Tensor StashPools::take(int layer, int microbatch, int slot, bool is_backward) {
  Flight& f = flight(microbatch);
  f.taken[static_cast<size_t>(layer)][static_cast<size_t>(slot)] = 1;
  settle(layer, microbatch, is_backward);
  return tensor(f, layer, slot, is_backward);
}

void StashPools::settle(int layer, int microbatch, bool is_backward) {
  Flight& f = flight(microbatch);
  const auto at = static_cast<size_t>(layer);
  for (size_t slot = 0; slot < layers_[at].stash.size(); ++slot) {
    if (f.taken[at][slot] == 0) continue;
    f.taken[at][slot] = 0;
    const spec::Slot& spec = layers_[at].stash[slot];
    // A slot stored over another one takes nothing more, as long as that one is still there.
    if (spec.replaces >= 0 && f.counted_in[at][static_cast<size_t>(spec.replaces)] != 0) continue;
    if (f.counted_in[at][slot] != 0) continue;
    const auto pool = static_cast<size_t>(home(layer, static_cast<int>(slot), is_backward).pool);
    f.counted_in[at][slot] = static_cast<uint8_t>(pool + 1);
    live_[pool] += base::bytes_of(spec.spec);
    peak_[pool] = std::max(peak_[pool], live_[pool]);
  }
}

void StashPools::release_dropped(int layer, int microbatch) {
  Flight& f = flight(microbatch);
  const auto at = static_cast<size_t>(layer);
  for (size_t slot = 0; slot < fates_[at].size(); ++slot) {
    if (fates_[at][slot] != spec::Fate::kept) uncount(f, layer, static_cast<int>(slot));
  }
}

void StashPools::release_after_input(int layer, int microbatch) {
  Flight& f = flight(microbatch);
  const auto at = static_cast<size_t>(layer);
  for (size_t slot = 0; slot < layers_[at].stash.size(); ++slot) {
    const Pool pool = home(layer, static_cast<int>(slot), true).pool;
    if (pool == Pool::f_to_b || pool == Pool::recompute) uncount(f, layer, static_cast<int>(slot));
  }
}

void StashPools::release_after_weight(int layer, int microbatch) {
  Flight& f = flight(microbatch);
  for (size_t slot = 0; slot < layers_[static_cast<size_t>(layer)].stash.size(); ++slot) {
    uncount(f, layer, static_cast<int>(slot));
  }
}

StashPools::Flight& StashPools::flight(int microbatch) {
  const auto found = std::find_if(flights_.begin(), flights_.end(), [microbatch](const Flight& f) {
    return f.microbatch == microbatch;
  });
  TRIREME_CHECK(microbatch >= 0 && found != flights_.end(), "micro-batch {} is not in flight",
                microbatch);
  return *found;
}

int StashPools::free_frame(Pool pool) {
  std::vector<uint8_t>& used = frame_used_[static_cast<size_t>(pool)];
  const auto found = std::find(used.begin(), used.end(), uint8_t{0});
  TRIREME_CHECK(found != used.end(), "all {} frames of pool {} are taken", used.size(),
                spec::name_of(pool));
  *found = 1;
  return static_cast<int>(found - used.begin());
}

const spec::SlotHome& StashPools::home(int layer, int slot, bool is_backward) const {
  const auto& homes = is_backward ? layout_.in_backward : layout_.in_forward;
  return homes[static_cast<size_t>(layer)][static_cast<size_t>(slot)];
}

device::Tensor StashPools::tensor(const Flight& f, int layer, int slot, bool is_backward) const {
  const base::TensorSpec& spec =
      layers_[static_cast<size_t>(layer)].stash[static_cast<size_t>(slot)].spec;
  if (spec.shape.ndim() == 0) return {};
  const spec::SlotHome& where = home(layer, slot, is_backward);
  const auto pool = static_cast<size_t>(where.pool);
  const int frame = where.pool == Pool::stream ? layer % 2 : f.frame[pool];
  const int64_t offset = pool_begin_[pool] + frame * layout_.pools[pool].bytes + where.offset;
  return device::view_of(buffer_.data() + offset, spec);
}

void StashPools::uncount(Flight& f, int layer, int slot) {
  const auto at = static_cast<size_t>(layer), index = static_cast<size_t>(slot);
  const uint8_t counted = f.counted_in[at][index];
  if (counted == 0) return;
  live_[counted - 1U] -= base::bytes_of(layers_[at].stash[index].spec);
  f.counted_in[at][index] = 0;
}

}  // namespace trireme::engine
