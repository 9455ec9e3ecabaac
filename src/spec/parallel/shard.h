// SPDX-License-Identifier: Apache-2.0
// How a parameter is cut, and which part a rank holds. Weight initialisation, checkpoints, the
// gradient norm, optimizer memory and export all call pieces(); no other code does arithmetic on
// shards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/parallel/axes.h"

namespace trireme::spec {

// Dimension `dim` is cut over `axis`: each of `segments` (which add up to the dimension; empty
// means one segment) is cut into equal parts, and a rank holds its part of every segment, side by
// side. So a fused q|k|v gives each rank its share of q, of k and of v.
//
// With a grain the one segment (of dimension 0) need not divide: ranks hold ceil(rows / ranks) rows
// each, the last ranks fewer, and every compute copy is padded with rows to a multiple of the
// grain. Padding is not part of the parameter: no piece contains it.
struct Cut {
  Axis axis = Axis::tp;
  int dim = 0;
  std::vector<int64_t> segments;
  int64_t grain = 0;  // 0: parts are equal, without padding
  bool operator==(const Cut&) const = default;
};

struct ShardSpec {
  std::string name;
  std::vector<int64_t> shape;  // of the whole parameter
  std::vector<Cut> cuts;       // at most one per dimension
  bool operator==(const ShardSpec&) const = default;
};

struct Range {
  int64_t begin = 0, end = 0;
  bool operator==(const Range&) const = default;
};

// A box [lo, hi) of the whole parameter, stored in row-major order from element `local` of the
// holder's flat range on.
struct Piece {
  std::vector<int64_t> lo, hi;
  int64_t local = 0;
  bool operator==(const Piece&) const = default;
};

// Returns the shape of the compute copy, which is the same at every coordinate. Throws ConfigError,
// with name and numbers, if a segment does not divide by the size of its axis.
std::vector<int64_t> local_shape(const ShardSpec&, const Sizes&);
// Returns the indices of a cut dimension of size `extent` that the rank at `coord` holds, without
// padding. REQUIRES: a cut of one segment.
Range local_range(const Cut&, int64_t extent, const Sizes&, const Coord&);
int64_t local_elements(const ShardSpec&, const Sizes&);

// Returns, in order, the pieces of the elements [flat.begin, flat.end) of the row-major compute
// copy at `coord`. Piece::local counts from flat.begin. REQUIRES: 0 <= begin <= end <=
// local_elements().
std::vector<Piece> pieces(const ShardSpec&, const Sizes&, const Coord&, Range flat);

// A strided copy of a box of elements: for every index of `count` (outermost first) one element
// from source[source_offset + index . source_stride] to target[target_offset + index .
// target_stride]. The innermost stride of both is 1.
struct Copy {
  int source = 0;  // index into `saved`
  int64_t source_offset = 0, target_offset = 0;
  std::vector<int64_t> count, source_stride, target_stride;
};

// Returns the copies that fill `wanted` from `saved` (one list per saved file or rank; of replicas
// the first is read). Every wanted element is written exactly once; throws ConfigError naming the
// first box that is in no saved list.
std::vector<Copy> reshard(const std::vector<std::vector<Piece>>& saved,
                          const std::vector<Piece>& wanted);

}  // namespace trireme::spec
