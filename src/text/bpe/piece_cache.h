// SPDX-License-Identifier: Apache-2.0
// PieceCache: the ids of pieces that were encoded before. It has a fixed size; a new piece takes
// the place of another with the same slot, so that memory stays bounded and results do not change.
// One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace trireme::text {

class PieceCache {
 public:
  static constexpr size_t max_bytes = 30;  // of a piece
  static constexpr size_t max_ids = 8;

  // One cache line.
  struct alignas(64) Entry {
    uint8_t bytes = 0;  // 0: empty
    uint8_t count = 0;
    std::array<char, max_bytes> text{};
    std::array<int32_t, max_ids> ids{};

    bool holds(std::string_view piece) const {
      return bytes == piece.size() && std::memcmp(text.data(), piece.data(), piece.size()) == 0;
    }
  };

  explicit PieceCache(size_t entries = size_t{1} << 16U) : mask_(entries - 1), entries_(entries) {}

  // The entry that holds the piece or may take it. REQUIRES: 1 <= piece.size() <= max_bytes.
  Entry& slot(std::string_view piece) { return entries_[hash(piece) & mask_]; }

  static void fill(Entry& entry, std::string_view piece, std::span<const int32_t> ids) {
    if (ids.size() > max_ids) return;
    entry.bytes = static_cast<uint8_t>(piece.size());
    entry.count = static_cast<uint8_t>(ids.size());
    std::memcpy(entry.text.data(), piece.data(), piece.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  static uint64_t load(const char* at, size_t size) {
    uint64_t word = 0;
    std::memcpy(&word, at, size);
    return word;
  }
  static uint64_t mix(uint64_t a, uint64_t b) {
    const uint64_t product = a * b;
    return product ^ product >> 32U;
  }
  static size_t hash(std::string_view piece) {
    const char* p = piece.data();
    const size_t n = piece.size();
    uint64_t h = n * 0x9E3779B97F4A7C15U;
    if (n >= 8) {
      for (size_t i = 0; i + 8 < n; i += 8) {
        h = mix(h ^ load(p + i, 8), 0xA0761D6478BD642FU);
      }
      h = mix(h ^ load(p + n - 8, 8), 0xE7037ED1A0B428DBU);
    } else if (n >= 4) {
      h = mix(h ^ (load(p, 4) << 32U | load(p + n - 4, 4)), 0xE7037ED1A0B428DBU);
    } else {
      const uint64_t bytes = load(p, 1) << 16U | load(p + n / 2, 1) << 8U | load(p + n - 1, 1);
      h = mix(h ^ bytes, 0xE7037ED1A0B428DBU);
    }
    return static_cast<size_t>(h);
  }

  size_t mask_;
  std::vector<Entry> entries_;
};

}  // namespace trireme::text
