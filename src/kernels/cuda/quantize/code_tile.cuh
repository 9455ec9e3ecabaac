// SPDX-License-Identifier: Apache-2.0
// A tile of 128 x 128 bytes in shared memory, written as columns and read as rows of its transpose.
// A block of 256 threads has it; thread (unit, v) holds 8 x 8 bytes: rows 8 unit to 8 unit + 7 and
// columns 8 v to 8 v + 7. Lanes of half a warp have the same unit, so that they read and write 128
// consecutive bytes of a row.
//
// Column c of the tile has 16 pieces of 8 bytes; the piece of unit u lies at place u ^ (c / 8). The
// lanes of half a warp, which write columns of different v, touch all banks once, and 8 lanes that
// read one column do, too, 16 bytes each.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {

constexpr int tile_side = 128;
constexpr int tile_threads = 256;
constexpr int part_side = 8;  // of a thread's part of the tile

struct TilePlace {
  int unit, v;
  __device__ TilePlace()
      : unit(static_cast<int>(threadIdx.x) / 16), v(static_cast<int>(threadIdx.x) % 16) {}
  __device__ int first_row() const { return unit * part_side; }
  __device__ int first_col() const { return v * part_side; }
};

// Eight rows of eight bytes; afterwards at[c] has the eight bytes of column c.
__device__ inline void transpose_bytes(uint2 (&at)[part_side]) {
  const auto transpose_four = [](uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
    const uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
    const uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
    a = __byte_perm(ab_low, cd_low, 0x5410);
    b = __byte_perm(ab_low, cd_low, 0x7632);
    c = __byte_perm(ab_high, cd_high, 0x5410);
    d = __byte_perm(ab_high, cd_high, 0x7632);
  };
  transpose_four(at[0].x, at[1].x, at[2].x, at[3].x);
  transpose_four(at[4].x, at[5].x, at[6].x, at[7].x);
  transpose_four(at[0].y, at[1].y, at[2].y, at[3].y);
  transpose_four(at[4].y, at[5].y, at[6].y, at[7].y);
  // Columns 0 to 3 of rows 4 to 7 change places with columns 4 to 7 of rows 0 to 3.
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t other = at[j].y;
    at[j].y = at[4 + j].x;
    at[4 + j].x = other;
  }
}

struct CodeTile {
  uint4 words[tile_side * tile_side / 16];

  // `columns`: this thread's part, transposed.
  __device__ void put(const TilePlace& place, const uint2 (&columns)[part_side]) {
    auto* pieces = reinterpret_cast<uint2*>(words);
#pragma unroll
    for (int j = 0; j < part_side; ++j) {
      const int column = place.first_col() + j;
      pieces[column * 16 + (place.unit ^ place.v)] = columns[j];
    }
  }

  // Stores row c of the transpose at to + c * stride, for `cols` columns and `rows` rows of the
  // tile. `is_aligned`: to and stride are multiples of 16. All threads call it, after a barrier.
  __device__ void store(uint8_t* to, int64_t stride, int cols, int rows, bool is_aligned) const {
    constexpr int pieces = tile_side / 16;  // of 16 bytes, of a column
#pragma unroll
    for (int i = 0; i < tile_side * pieces / tile_threads; ++i) {
      const int at = i * tile_threads + static_cast<int>(threadIdx.x);
      const int c = at / pieces, q = at % pieces, v = c / part_side;
      if (c >= cols || q * 16 >= rows) continue;
      const uint4 found = words[c * pieces + (q ^ (v / 2))];
      const uint4 bytes = v % 2 == 0 ? found : make_uint4(found.z, found.w, found.x, found.y);
      uint8_t* place = to + c * stride + q * 16;
      if (is_aligned && q * 16 + 16 <= rows) {
        store_bits(place, bytes);
        continue;
      }
      const uint32_t four[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        if (q * 16 + j < rows) place[j] = static_cast<uint8_t>(four[j / 4] >> (8 * (j % 4)));
      }
    }
  }
};

}  // namespace trireme::kernels::cuda
