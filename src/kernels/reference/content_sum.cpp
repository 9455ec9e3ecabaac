// SPDX-License-Identifier: Apache-2.0
// content_sum by the formula of base/hash/content_sum.h, byte by byte.
#include "base/hash/content_sum.h"

#include <algorithm>

#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"

namespace trireme::kernels::reference {
namespace {

// Returns up to eight bytes as a word; those that are missing are zero.
uint64_t word_of(const std::byte* from, int64_t bytes) {
  uint64_t word = 0;
  for (int64_t i = 0; i < std::min<int64_t>(bytes, 8); ++i) {
    word |= std::to_integer<uint64_t>(from[i]) << (8 * i);
  }
  return word;
}

}  // namespace

void content_sum(Stream& stream, const ContentSumArgs& args) {
  run_on(stream, [args] {
    auto& total = *reinterpret_cast<base::ContentSum*>(args.sum.data);
    for (const ContentRange& range : args.ranges) {
      const int64_t bytes = range.bytes.bytes();
      for (int64_t at = 0; at < bytes; at += base::content_block_bytes) {
        const std::byte* block = range.bytes.data + at;
        const auto p = static_cast<uint64_t>((range.offset + at) / base::content_block_bytes);
        total.add_block(word_of(block, bytes - at), word_of(block + 8, bytes - at - 8),
                        base::ContentKeys::at(p));
      }
    }
  });
}

}  // namespace trireme::kernels::reference
