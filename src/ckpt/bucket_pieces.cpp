// SPDX-License-Identifier: Apache-2.0
#include "ckpt/bucket_pieces.h"

#include <algorithm>

namespace trireme::ckpt {

std::vector<ParamPieces> bucket_pieces(std::span<const spec::Param> params,
                                       const spec::BucketLayout& bucket, const spec::Sizes& sizes,
                                       const spec::Coord& coord, spec::Range range) {
  std::vector<ParamPieces> all;
  for (const spec::BucketEntry& entry : bucket.entries) {
    const int64_t begin = std::max(range.begin, entry.offset);
    const int64_t end = std::min(range.end, entry.offset + entry.elements);
    if (begin >= end) continue;
    const spec::ShardSpec& shard = params[static_cast<size_t>(entry.param)].shard;
    ParamPieces part{entry.param,
                     spec::pieces(shard, sizes, coord, {begin - entry.offset, end - entry.offset})};
    for (spec::Piece& piece : part.pieces) piece.local += begin - range.begin;
    if (!part.pieces.empty()) all.push_back(std::move(part));
  }
  return all;
}

bool saves_along_tp(const spec::Param& param, const spec::Coord& coord) {
  if (param.view == spec::ParamView::expert) return true;
  const bool is_cut = std::ranges::any_of(
      param.shard.cuts, [](const spec::Cut& cut) { return cut.axis == spec::Axis::tp; });
  return is_cut || coord[spec::Axis::tp] == 0;
}

}  // namespace trireme::ckpt
