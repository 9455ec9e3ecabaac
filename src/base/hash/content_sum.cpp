// SPDX-License-Identifier: Apache-2.0
#include "base/hash/content_sum.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace trireme::base {
namespace {

constexpr size_t block_bytes = static_cast<size_t>(content_block_bytes);

void add_content_block(ContentSum& sum, const std::byte* from, const ContentKeys& keys) {
  uint64_t words[2];
  std::memcpy(words, from, sizeof words);
  sum.add_block(words[0], words[1], keys);
}

}  // namespace

void ContentSum::add(std::span<const std::byte> part, int64_t offset) {
  TRIREME_CHECK(offset >= 0 && offset % content_block_bytes == 0, "a part at byte {}", offset);
  ContentKeys keys = ContentKeys::at(static_cast<uint64_t>(offset / content_block_bytes));
  ContentSum sum;  // in registers
  const size_t whole = part.size() / block_bytes;
  for (size_t i = 0; i < whole; ++i) {
    add_content_block(sum, part.data() + i * block_bytes, keys);
    keys = keys.after(1);
  }
  if (const auto rest = part.subspan(whole * block_bytes); !rest.empty()) {
    std::byte last[block_bytes] = {};
    std::ranges::copy(rest, last);
    add_content_block(sum, last, keys);
  }
  add(sum);
}

}  // namespace trireme::base
