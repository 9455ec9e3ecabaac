// SPDX-License-Identifier: Apache-2.0
// Converts a flat range of a bucket (spec/parallel/bucket.h), such as a rank's share of master
// weights or moments, into boxes of parameters: what a rank saves and what it reads back. Padding
// is in no box.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/facts/facts.h"
#include "spec/parallel/bucket.h"
#include "spec/parallel/shard.h"

namespace trireme::ckpt {

// The parts of one parameter that lie in the range. Piece::local counts elements of the bucket from
// the start of the range; the elements of a piece are contiguous there.
struct ParamPieces {
  int param = 0;  // index into the layer's params
  std::vector<spec::Piece> pieces;
};

// Returns pieces in the order of the bucket; parameters outside the range are left out.
std::vector<ParamPieces> bucket_pieces(std::span<const spec::Param>, const spec::BucketLayout&,
                                       const spec::Sizes&, const spec::Coord&, spec::Range range);

// Returns whether this rank saves the parameter. Ranks along tp hold identical copies of a
// parameter that is not cut along tp; the first of them saves it. All ranks of the expert view hold
// different elements.
bool saves_along_tp(const spec::Param&, const spec::Coord&);

}  // namespace trireme::ckpt
