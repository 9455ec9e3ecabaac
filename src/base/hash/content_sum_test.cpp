// SPDX-License-Identifier: Apache-2.0
#include "base/hash/content_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace trireme::base {
namespace {

constexpr size_t test_blocks = 40;

std::vector<std::byte> random_content(size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> content(bytes);
  for (std::byte& byte : content) byte = static_cast<std::byte>(random());
  return content;
}
ContentSum sum_of(std::span<const std::byte> content) {
  ContentSum sum;
  sum.add(content, 0);
  return sum;
}

// By hand: 64 x 64 bits in four products of 32 bits.
void add_by_hand(uint64_t x, uint64_t y, ContentSum& sum) {
  const uint64_t mask = 0xffffffffU;
  const uint64_t low = (x & mask) * (y & mask), high = (x >> 32) * (y >> 32);
  const uint64_t left = (x >> 32) * (y & mask), right = (x & mask) * (y >> 32);
  const uint64_t middle = (low >> 32) + (left & mask) + (right & mask);
  const uint64_t term_low = (middle << 32) | (low & mask);
  const uint64_t term_high = high + (left >> 32) + (right >> 32) + (middle >> 32);
  sum.low += term_low;
  sum.high += term_high + (sum.low < term_low ? 1 : 0);
}

TEST(ContentSumTest, is_the_formula) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{16}, size_t{31}, size_t{4000}}) {
    const std::vector<std::byte> content = random_content(bytes, 1);
    ContentSum expected;
    for (size_t begin = 0, p = 0; begin < bytes; begin += 16, ++p) {
      uint64_t words[2] = {};
      for (size_t i = begin; i < std::min(bytes, begin + 16); ++i) {
        words[(i - begin) / 8] |= std::to_integer<uint64_t>(content[i]) << (8 * (i % 8));
      }
      const uint64_t u = 0xbf58476d1ce4e5b9 + p * 0x9e3779b97f4a7c15;
      const uint64_t v = 0x94d049bb133111eb + p * 0xd1b54a32d192ed03;
      add_by_hand(words[0] + (u ^ (u >> 32)), words[1] + (v ^ (v >> 32)), expected);
    }
    EXPECT_EQ(sum_of(content), expected) << bytes;
  }
}

TEST(ContentSumTest, parts_may_come_in_any_order) {
  const std::vector<std::byte> content = random_content(10'007, 2);
  for (const size_t part : {size_t{16}, size_t{160}, size_t{4096}}) {
    std::vector<size_t> begins;
    for (size_t at = 0; at < content.size(); at += part) begins.push_back(at);
    std::ranges::shuffle(begins, std::mt19937(3));
    ContentSum sum;
    for (const size_t at : begins) {
      ContentSum own;
      own.add(std::span(content).subspan(at, std::min(part, content.size() - at)),
              static_cast<int64_t>(at));
      sum.add(own);
    }
    EXPECT_EQ(sum, sum_of(content)) << part;
  }
}

TEST(ContentSumTest, every_flipped_bit_is_found) {
  // Zeros as well: most state is near them.
  for (const bool is_zero : {false, true}) {
    std::vector<std::byte> content = random_content(16 * test_blocks, 4);
    if (is_zero) std::ranges::fill(content, std::byte{0});
    const ContentSum sum = sum_of(content);
    for (size_t bit = 0; bit < 8 * content.size(); ++bit) {
      const auto mask = static_cast<std::byte>(1U << (bit % 8));
      content[bit / 8] ^= mask;
      EXPECT_NE(sum_of(content), sum) << bit;
      content[bit / 8] ^= mask;
    }
  }
}

TEST(ContentSumTest, pairs_of_flipped_bits_are_found) {
  std::vector<std::byte> content(16 * 6);
  const ContentSum sum = sum_of(content);
  for (size_t one = 0; one < 8 * content.size(); ++one) {
    for (size_t two = 0; two < one; ++two) {
      for (const size_t bit : {one, two}) content[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      EXPECT_NE(sum_of(content), sum) << one << " " << two;
      for (const size_t bit : {one, two}) content[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    }
  }
}

TEST(ContentSumTest, blocks_at_other_places_are_found) {
  const std::vector<std::byte> content = random_content(16 * test_blocks, 5);
  const ContentSum sum = sum_of(content);
  const auto block = [](std::vector<std::byte>& of, size_t i) {
    return std::span(of).subspan(16 * i, 16);
  };
  for (size_t i = 0; i < test_blocks; ++i) {
    for (size_t j = 0; j < i; ++j) {
      std::vector<std::byte> swapped = content, repeated = content;
      std::ranges::swap_ranges(block(swapped, i), block(swapped, j));
      EXPECT_NE(sum_of(swapped), sum) << i << " " << j;
      std::ranges::copy(block(repeated, j), block(repeated, i).begin());
      EXPECT_NE(sum_of(repeated), sum) << i << " " << j;
    }
    std::vector<std::byte> turned = content;  // the two words of a block
    std::ranges::rotate(block(turned, i), block(turned, i).begin() + 8);
    EXPECT_NE(sum_of(turned), sum) << i;
  }
  std::vector<std::byte> shifted(content.begin() + 16, content.end());
  shifted.insert(shifted.end(), content.begin(), content.begin() + 16);
  EXPECT_NE(sum_of(shifted), sum);
}

// Four equal changes in neighbouring blocks, of signs + - - +: they cancel in sums with keys that
// are linear in the block's number.
TEST(ContentSumTest, changes_with_a_pattern_are_found) {
  for (size_t first = 0; first + 4 <= test_blocks; ++first) {
    std::vector<std::byte> content(16 * test_blocks, std::byte{8});
    const ContentSum sum = sum_of(content);
    for (const size_t i : {first, first + 3}) content[16 * i + 5] = std::byte{9};
    for (const size_t i : {first + 1, first + 2}) content[16 * i + 5] = std::byte{7};
    EXPECT_NE(sum_of(content), sum) << first;
  }
}

// The block whose key of one word is zero: there the other word does not count if the word is zero.
TEST(ContentSumTest, no_key_of_a_content_is_zero) {
  const auto zero_at = [](uint64_t start, uint64_t step) {
    uint64_t inverse = step;  // mod 2^64, by Newton's iteration
    for (int i = 0; i < 6; ++i) inverse *= 2 - step * inverse;
    EXPECT_EQ(inverse * step, 1U);
    return (0 - start) * inverse;
  };
  constexpr uint64_t max_blocks = uint64_t{1} << 59;  // of a content whose bytes int64_t counts
  const ContentKeys keys = ContentKeys::at(0);
  const uint64_t first = zero_at(keys.first, ContentKeys::first_step);
  const uint64_t second = zero_at(keys.second, ContentKeys::second_step);
  EXPECT_EQ(ContentKeys::at(first).first, 0U);
  EXPECT_EQ(ContentKeys::at(second).second, 0U);
  EXPECT_GT(first, max_blocks);
  EXPECT_GT(second, max_blocks);
}

}  // namespace
}  // namespace trireme::base
