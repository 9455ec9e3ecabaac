// SPDX-License-Identifier: Apache-2.0
// PairTable: which pair of token ids merges into which token, and how early. A flat hash table with
// linear probing: a lookup touches one or two cache lines.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::text {

struct Merge {
  uint32_t rank;  // the lower, the earlier
  int32_t id;     // of the token that the pair becomes
};

class PairTable {
 public:
  PairTable() : PairTable(0) {}
  // `count` is the number of pairs that will be added at most.
  explicit PairTable(size_t count)
      : mask_(std::bit_ceil(count * 2 + 2) - 1),
        shift_(64 - static_cast<int>(std::bit_width(mask_))),
        entries_(mask_ + 1, Entry{empty, {}}) {}

  // A later merge of the same pair takes the place of an earlier one. REQUIRES: ids >= 0.
  void set(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = key_of(left, right);
    size_t i = slot_of(key);
    while (entries_[i].key != empty && entries_[i].key != key) i = (i + 1) & mask_;
    entries_[i] = {key, merge};
  }

  // nullptr if the pair does not merge.
  const Merge* find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (entries_[i].key == key) return &entries_[i].merge;
      if (entries_[i].key == empty) return nullptr;
    }
  }

 private:
  static constexpr uint64_t empty = ~uint64_t{0};
  struct Entry {
    uint64_t key;
    Merge merge;
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32U | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const {
    const uint64_t mixed = (key ^ key >> 32U) * 0x9E3779B97F4A7C15U;
    return static_cast<size_t>((mixed ^ key * 0xC2B2AE3D27D4EB4FU) >> shift_) & mask_;
  }

  size_t mask_;
  int shift_;
  std::vector<Entry> entries_;
};

}  // namespace trireme::text
