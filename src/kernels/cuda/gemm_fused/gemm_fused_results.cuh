// SPDX-License-Identifier: Apache-2.0
// Results of grouped products that need no activation, on their way from the registers of the warps
// that multiply to memory, through the place of the values in shared memory: see
// experts/grouped.cuh and gemm_fused_multiply.cuh.
#pragma once

#include <cstring>

#include "kernels/cuda/gemm_fused/gemm_fused_chunks.cuh"

namespace trireme::kernels::cuda::fused {

// Called by all threads of a block; a barrier of the cluster must follow.
__device__ inline void init_barriers(Shared shared) {
  if (threadIdx.x != 0) return;
  for (int stage = 0; stage < stages; ++stage) {
    hopper::init_barrier(shared.full(stage), 1);
    hopper::init_barrier(shared.empty(stage), 2 * blocks_of_cluster);
  }
  for (int half = 0; half < 2; ++half) {
    hopper::init_barrier(shared.made(half), group_threads);
    hopper::init_barrier(shared.taken(half), finishing_warps * warp_size);
    for (int place = 0; place < 2; ++place) {
      hopper::init_barrier(shared.ready(half, place), 1);
      hopper::init_barrier(shared.filled(half, place), group_threads);
    }
  }
  hopper::publish_barriers();
}

// Boxes of 64 rows of 128 bytes in the place of the values, as the copy engine reads them.
constexpr uint32_t result_box_bytes = half_m * 128;
constexpr uint32_t bytes_of_half = tile_m * row_bytes / 2;

// The values of a warpgroup in bf16. A warp (ResultMover) copies them to memory while products run.
class Results {
 public:
  __device__ Results(Shared shared, int half)
      : shared_(shared), half_(half), place_(shared.base + values_begin + half * bytes_of_half) {}

  __device__ void put(const float (&d)[tile_n / 2]) {
    const int thread = static_cast<int>(threadIdx.x) % group_threads;
    const int lane = thread % warp_size, row = 16 * (thread / warp_size) + lane % 16;
    hopper::wait(shared_.ready(half_, 0), parity_);
    parity_ ^= 1;
#pragma unroll
    for (int chunk = 0; chunk < tile_n / 8; chunk += 2) {
      const uint32_t at = place_ + chunk / 8 * result_box_bytes + row * 128;
      hopper::store_matrices(at + swizzled(row, chunk % 8 + lane / 16), pair(d, chunk, 0),
                             pair(d, chunk, 1), pair(d, chunk + 1, 0), pair(d, chunk + 1, 1));
    }
    hopper::publish_writes();
    hopper::arrive(shared_.filled(half_, 0));
  }

 private:
  // Two neighbours of the upper or lower eight rows.
  __device__ static uint32_t pair(const float (&d)[tile_n / 2], int chunk, int lower) {
    const __nv_bfloat162 both =
        __floats2bfloat162_rn(d[4 * chunk + 2 * lower], d[4 * chunk + 2 * lower + 1]);
    uint32_t word;
    memcpy(&word, &both, 4);
    return word;
  }

  Shared shared_;
  int half_;
  uint32_t place_;
  uint32_t parity_ = 0;
};

// Run by one thread for each warpgroup that multiplies. Rows from the end of the groups on are not
// written: it is the end of a tile.
template <typename Product, typename AnyTiles>
__device__ void move_results(const Product& p, Shared shared, AnyTiles tiles, int half) {
  const uint32_t place = shared.base + values_begin + half * bytes_of_half;
  uint32_t parity = 0;
  hopper::arrive(shared.ready(half, 0));
  for (; tiles.has_tile(); tiles.advance(), parity ^= 1) {
    const Tile tile = tiles.tile();
    hopper::wait(shared.filled(half, 0), parity);
#pragma unroll
    for (int box = 0; box < tile_n / swizzled_columns; ++box) {
      const int column = tile.column + box * swizzled_columns;
      if (column < p.n && tile.row < tiles.end_row()) {
        hopper::store_tile(&p.results, place + box * result_box_bytes, column,
                           tile.row + half * half_m, 0);
      }
    }
    hopper::tiles_commit();
    hopper::tiles_wait_read<0>();
    hopper::arrive(shared.ready(half, 0));
  }
}

// A gradient in fp32: 64 columns at a time pass through two places in turn, from where a warp
// (GradientMover) copies them to memory while products run. To add to what is there, the warp
// copies the first two parts of it to the places beforehand; the memory system adds the other two
// parts, for which no place is free in time. Every element is added once.
constexpr int gradient_columns = 64, gradient_places = 2;
constexpr int gradient_parts = tile_n / gradient_columns;
constexpr uint32_t gradient_place_bytes = gradient_columns / 32 * result_box_bytes;
static_assert(gradient_places * gradient_place_bytes <= bytes_of_half);
static_assert(gradient_parts == 2 * gradient_places);  // so that parities are those of parts
__device__ inline uint32_t gradient_place(Shared shared, int half, int part) {
  return shared.base + values_begin + half * bytes_of_half +
         part % gradient_places * gradient_place_bytes;
}
__device__ inline uint32_t gradient_parity(int part) { return part / gradient_places % 2; }

class Gradients {
 public:
  __device__ Gradients(Shared shared, int half) : shared_(shared), half_(half) {}

  __device__ void put(bool adds, const float (&d)[tile_n / 2]) const {
    const int thread = static_cast<int>(threadIdx.x) % group_threads;
    const int lane = thread % warp_size, row = 16 * (thread / warp_size) + lane / 4;
#pragma unroll
    for (int part = 0; part < gradient_parts; ++part) {
      const int place = part % gradient_places;
      const uint32_t at = gradient_place(shared_, half_, part) + row * 128;
      hopper::wait(shared_.ready(half_, place), gradient_parity(part));
#pragma unroll
      for (int chunk = 0; chunk < gradient_columns / 8; ++chunk) {
        const uint32_t to = at + chunk / 4 * result_box_bytes + lane % 2 * 8 +
                            swizzled(row, chunk % 4 * 2 + lane % 4 / 2);
        const float* four = d + 4 * (part * (gradient_columns / 8) + chunk);
        put_pair(to, four[0], four[1], adds && part < gradient_places);
        put_pair(to + 8 * 128, four[2], four[3], adds && part < gradient_places);
      }
      hopper::publish_writes();
      hopper::arrive(shared_.filled(half_, place));
    }
  }

 private:
  __device__ static void put_pair(uint32_t at, float x, float y, bool adds) {
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        ".reg .f32 a, b;\n"
        "setp.ne.s32 adds, %3, 0;\n"
        "mov.f32 a, 0f00000000;\n"
        "mov.f32 b, 0f00000000;\n"
        "@adds ld.shared.v2.f32 {a, b}, [%0];\n"
        "add.f32 a, a, %1;\n"
        "add.f32 b, b, %2;\n"
        "st.shared.v2.f32 [%0], {a, b};\n"
        "}" ::"r"(at),
        "f"(x), "f"(y), "r"(static_cast<int>(adds))
        : "memory");
  }

  Shared shared_;
  int half_;
};

// Run by one thread for each warpgroup that multiplies.
template <typename Product, typename AnyTiles>
class GradientMover {
 public:
  __device__ GradientMover(const Product& p, Shared shared, int half)
      : p_(p), shared_(shared), half_(half) {}

  __device__ void run(AnyTiles tiles) const {
    if (!tiles.has_tile()) return;
    for (int part = 0; part < gradient_places; ++part) prepare(tiles.tile(), part);
    while (tiles.has_tile()) {
      const Tile tile = tiles.tile();
      tiles.advance();
#pragma unroll
      for (int part = 0; part < gradient_parts; ++part) {
        hopper::wait(shared_.filled(half_, part % gradient_places), gradient_parity(part));
        move(tile, part, [&](uint32_t place, int column, int row) {
          if (column >= p_.n || row >= p_.m) return;
          if (p_.adds && part >= gradient_places) {
            hopper::add_tile(&p_.results, place, column, row, tile.group);
          } else {
            hopper::store_tile(&p_.results, place, column, row, tile.group);
          }
        });
        hopper::tiles_commit();
        hopper::tiles_wait_read<0>();
        const int next = part + gradient_places;
        if (next < gradient_parts) {
          prepare(tile, next);
        } else if (tiles.has_tile()) {
          prepare(tiles.tile(), next - gradient_parts);
        }
      }
    }
  }

 private:
  // Calls f(place, column, row) for the boxes of a part.
  template <typename F>
  __device__ void move(const Tile& tile, int part, const F& f) const {
#pragma unroll
    for (int box = 0; box < gradient_columns / 32; ++box) {
      f(gradient_place(shared_, half_, part) + box * result_box_bytes,
        tile.column + part * gradient_columns + box * 32, tile.row + half_ * half_m);
    }
  }
  // Makes the place of a part ready.
  __device__ void prepare(const Tile& tile, int part) const {
    const uint32_t ready = shared_.ready(half_, part % gradient_places);
    if (!p_.adds || part >= gradient_places) {
      hopper::arrive(ready);
      return;
    }
    hopper::arrive_expecting(ready, gradient_place_bytes);
    move(tile, part, [&](uint32_t place, int column, int row) {
      hopper::copy_tile(place, &p_.results, column, row, tile.group, ready);
    });
  }

  const Product& p_;
  Shared shared_;
  int half_;
};

}  // namespace trireme::kernels::cuda::fused
