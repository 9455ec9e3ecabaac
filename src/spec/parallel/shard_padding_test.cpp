// SPDX-License-Identifier: Apache-2.0
// Cuts with a grain: rows that do not divide, padded compute copies.
#include <gtest/gtest.h>

#include "spec/facts/facts.h"
#include "spec/parallel/shard.h"

namespace trireme::spec {
namespace {

Sizes tensor_ranks(int tp) {
  Sizes sizes;
  sizes[Axis::tp] = tp;
  return sizes;
}

Coord at(int tp) {
  Coord coord;
  coord[Axis::tp] = tp;
  return coord;
}

ShardSpec table(int64_t rows, int64_t cols, int64_t grain) {
  ShardSpec spec{.name = "table", .shape = {rows, cols}, .cuts = {}};
  spec.cuts = {{Axis::tp, 0, {rows}, grain}};
  return spec;
}

// Every element is in the pieces of exactly one rank, at its place in a row-major compute copy that
// begins with the rank's rows; the rest of the copies is padding.
TEST(ShardPaddingTest, pieces_of_any_flat_ranges_hold_every_element_once) {
  for (const int64_t rows : {1, 5, 8, 37, 64}) {
    for (const int tp : {1, 2, 3, 8}) {
      for (const int64_t grain : {1, 8}) {
        for (const int64_t range_elements : {1, 7, 24, 1000}) {
          const int64_t cols = 3;
          const ShardSpec spec = table(rows, cols, grain);
          const Sizes sizes = tensor_ranks(tp);
          const int64_t elements = local_elements(spec, sizes);
          EXPECT_EQ(local_shape(spec, sizes).front() % grain, 0);
          std::vector<int> seen(static_cast<size_t>(rows * cols));
          for (int rank = 0; rank < tp; ++rank) {
            const Range held = local_range(spec.cuts.front(), rows, sizes, at(rank));
            for (int64_t begin = 0; begin < elements; begin += range_elements) {
              const Range flat{begin, std::min(elements, begin + range_elements)};
              for (const Piece& piece : pieces(spec, sizes, at(rank), flat)) {
                int64_t local = begin + piece.local;
                for (int64_t r = piece.lo[0]; r < piece.hi[0]; ++r) {
                  for (int64_t c = piece.lo[1]; c < piece.hi[1]; ++c, ++local) {
                    EXPECT_EQ(local, (r - held.begin) * cols + c);
                    ++seen[static_cast<size_t>(r * cols + c)];
                  }
                }
              }
            }
          }
          for (const int count : seen) ASSERT_EQ(count, 1) << rows << " rows, tp " << tp;
        }
      }
    }
  }
}

TEST(ShardPaddingTest, ranks_hold_shares_as_equal_as_possible) {
  const Sizes four = tensor_ranks(4);
  EXPECT_EQ(local_vocab(50257, four, at(0)), (Range{0, 12565}));
  EXPECT_EQ(local_vocab(50257, four, at(3)), (Range{37695, 50257}));
  EXPECT_EQ(padded_vocab(50257, four), 12568);
  EXPECT_EQ(padded_vocab(50304, four), 12576);
  EXPECT_EQ(padded_vocab(256, tensor_ranks(1)), 256);
  EXPECT_EQ(padded_vocab(50257, tensor_ranks(1)), 50264);
}

TEST(ShardPaddingDeathTest, only_rows_of_one_segment_have_a_grain) {
  ShardSpec columns = table(8, 3, 8);
  columns.cuts.front().dim = 1;
  columns.cuts.front().segments = {3};
  EXPECT_DEATH(local_shape(columns, {}), "grain");
  ShardSpec segments = table(8, 3, 8);
  segments.cuts.front().segments = {4, 4};
  EXPECT_DEATH(local_shape(segments, {}), "grain");
}

}  // namespace
}  // namespace trireme::spec
