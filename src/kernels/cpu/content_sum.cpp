// SPDX-License-Identifier: Apache-2.0
// content_sum: tasks add up pieces of the ranges; their sums come in any order.
#include "base/hash/content_sum.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/run.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

constexpr int64_t content_piece_bytes = 1 << 20;

struct ContentPiece {
  std::span<const std::byte> bytes;
  int64_t offset;
};

std::vector<ContentPiece> content_pieces(const ContentSumArgs& args) {
  std::vector<ContentPiece> pieces;
  for (const ContentRange& range : args.ranges) {
    const std::span all(range.bytes.data, static_cast<size_t>(range.bytes.bytes()));
    for (int64_t at = 0; at < std::ssize(all); at += content_piece_bytes) {
      const int64_t count = std::min(content_piece_bytes, std::ssize(all) - at);
      pieces.push_back(
          {all.subspan(static_cast<size_t>(at), static_cast<size_t>(count)), range.offset + at});
    }
  }
  return pieces;
}

void add_content(base::ThreadPool& pool, const ContentSumArgs& args) {
  const std::vector<ContentPiece> pieces = content_pieces(args);
  std::vector<base::ContentSum> sums(pieces.size());
  pool.for_each(std::ssize(pieces), [&](int64_t i) {
    const ContentPiece& piece = pieces[static_cast<size_t>(i)];
    sums[static_cast<size_t>(i)].add(piece.bytes, piece.offset);
  });
  auto& total = *reinterpret_cast<base::ContentSum*>(args.sum.data);
  for (const base::ContentSum& sum : sums) total.add(sum);
}

}  // namespace

void content_sum(Stream& stream, const ContentSumArgs& args) { run_on(stream, args, add_content); }

}  // namespace trireme::kernels::cpu
