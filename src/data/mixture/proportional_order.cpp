// SPDX-License-Identifier: Apache-2.0
#include "data/mixture/proportional_order.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace trireme::data {

ProportionalOrder::ProportionalOrder(std::vector<int64_t> shares, base::RngKey key)
    : shares_(std::move(shares)), key_(key) {}

SampleOrigin ProportionalOrder::at(int64_t position) const {
  if (shares_.share.size() == 1) return {0, position};
  const BlockPointer block = block_at(position);
  const auto slot = static_cast<size_t>(position - block->begin);
  const uint16_t source = block->sources[slot];
  return {source, block->counts[source] + block->items[slot]};
}

std::vector<int64_t> ProportionalOrder::counts(int64_t position) const {
  if (shares_.share.size() == 1) return {position};
  const BlockPointer block = block_at(position);
  std::vector<int64_t> counts = block->counts;
  const auto slots = static_cast<size_t>(position - block->begin);
  for (size_t slot = 0; slot < slots; ++slot) ++counts[block->sources[slot]];
  return counts;
}

ItemWindow ProportionalOrder::window_of(const SampleOrigin& origin) const {
  return item_window(shares_, origin.source, origin.sample);
}

int64_t ProportionalOrder::position_of(const SampleOrigin& origin) const {
  const ItemWindow window = window_of(origin);
  for (int64_t position = window.first; position < window.end; ++position) {
    if (at(position) == origin) return position;
  }
  TRIREME_CHECK(false, "sample {} of source {} is not in [{}, {})", origin.sample, origin.source,
                window.first, window.end);
  return -1;
}

ProportionalOrder::BlockPointer ProportionalOrder::block_at(int64_t position) const {
  TRIREME_CHECK(position >= 0 && position < (int64_t{1} << 61), "position {}", position);
  const int64_t block = position / shares_.block_slots, begin = block * shares_.block_slots;
  {
    const std::scoped_lock lock(mutex_);
    for (const BlockPointer& cached : cached_) {
      if (cached && cached->begin == begin) return cached;
    }
  }
  auto made = std::make_shared<const ProportionalBlock>(proportional_block(shares_, key_, block));
  const std::scoped_lock lock(mutex_);
  std::swap(cached_[0], cached_[1]);
  cached_[0] = made;
  return made;
}

}  // namespace trireme::data
