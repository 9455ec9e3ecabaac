// SPDX-License-Identifier: Apache-2.0
// A flat range of a bucket (spec/parallel/bucket.h), such as a rank's share of master weights or moments, as
// boxes of parameters: what a rank saves, and what it wants back. Padding is in none of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/parallel/bucket.h"
#include "spec/facts/facts.h"
#include "spec/parallel/shard.h"

namespace trireme::ckpt {

// Parts of one parameter that lie in the range. Piece::local counts elements of the bucket from the
// start of the range, and the elements of a piece lie there side by side.
struct ParamPieces {
  int param = 0;  // index into the layer's params
  std::vector<spec::Piece> pieces;
};

// In the order of the bucket; parameters of which the range has nothing are left out.
std::vector<ParamPieces> bucket_pieces(std::span<const spec::Param>, const spec::BucketLayout&,
                                       const spec::Sizes&, const spec::Coord&, spec::Range range);

// Does this rank save the parameter? All ranks along tp have the same copy of one that is not cut
// along tp: the first saves it.
bool saves_along_tp(const spec::Param&, const spec::Coord&);

}  // namespace trireme::ckpt
