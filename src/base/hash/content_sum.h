// SPDX-License-Identifier: Apache-2.0
// ContentSum: a hash of many bytes that host and device compute from parts in any order. The bytes
// are blocks of two 64-bit words (a, b), little-endian, the last one filled with zeros; p is the
// number of a block, from 0:
//
//   sum over p of (a + K(p)) (b + K'(p)) mod 2^128,  (a + K) and (b + K') mod 2^64
//
// This is NH of UMAC (Black et al., CRYPTO 1999) with keys that are derived from p.
//
// It detects accidents:
// - A change within one word is always detected, unless the other word of its block is minus its
//   key: one value of 2^64, and no small one.
// - Other changes (of several words; blocks that are missing, repeated or at another place) remain
//   undetected if their terms cancel in all 128 bits. For changes that do not depend on the keys
//   the chance is about 2^-64.
// It does not protect against an adversary, who knows the keys, and does not contain the number of
// bytes: with zeros behind them they have the same sum up to the end of the last block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::base {

constexpr int64_t content_block_bytes = 16;

// The keys of a block. Weyl sequences, whose halves are mixed: sums of keys of neighbours do not
// cancel. All functions are constexpr, because device code may call constexpr functions.
struct ContentKeys {
  uint64_t first, second;

  static constexpr uint64_t first_step = 0x9e3779b97f4a7c15, second_step = 0xd1b54a32d192ed03;
  static constexpr ContentKeys at(uint64_t block) {
    return ContentKeys{0xbf58476d1ce4e5b9, 0x94d049bb133111eb}.after(block);
  }
  // Returns those of the block so many blocks later.
  constexpr ContentKeys after(uint64_t blocks) const {
    return {first + blocks * first_step, second + blocks * second_step};
  }
  static constexpr uint64_t mixed(uint64_t key) { return key ^ (key >> 32U); }
};

struct ContentSum {
  uint64_t low = 0, high = 0;

  constexpr void add_block(uint64_t a, uint64_t b, const ContentKeys& keys) {
    __extension__ using Wide = unsigned __int128;
    const Wide term = static_cast<Wide>(a + ContentKeys::mixed(keys.first)) *
                      (b + ContentKeys::mixed(keys.second));
    const Wide sum = ((static_cast<Wide>(high) << 64U) | low) + term;
    low = static_cast<uint64_t>(sum);
    high = static_cast<uint64_t>(sum >> 64U);
  }
  constexpr void add(const ContentSum& other) {
    const uint64_t before = low;
    low += other.low;
    high += other.high + (low < before ? 1U : 0U);
  }
  // Adds the blocks of a part of the content, which begins at `offset`, a multiple of
  // content_block_bytes. Its last block is filled with zeros. Host only.
  void add(std::span<const std::byte> part, int64_t offset);

  bool operator==(const ContentSum&) const = default;
};

}  // namespace trireme::base
