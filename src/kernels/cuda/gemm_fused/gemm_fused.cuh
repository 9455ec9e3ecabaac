// SPDX-License-Identifier: Apache-2.0
// Matrix products in bf16 with the activation of a feed-forward network fused into them. The
// library needs a product and a pass over its result, or an epilogue that does not overlap its
// products.
//
// One block a multiprocessor runs tile after tile of 128 x 256 values. Of its 12 warps, one copies
// operands to shared memory, three steps of 64 along k ahead; two warpgroups multiply, 64 rows
// each, and leave a finished tile in shared memory as bf16 (gemm_fused_multiply.cuh); three warps
// apply the activation to it and write the results while the next tile is multiplied
// (gemm_fused_finish.cuh). GELU's gradient would take three warps longer than the product: its
// factors are computed by the warps that multiply, while products are in flight. Two blocks, one
// above the other, form a cluster; each copies half of their common b for both.
//
// Every element is summed along k in one fixed order (which may differ from the library's), and
// every result is rounded as by a product and a separate op, except for GELU's derivative, which is
// rounded to bf16 before it is multiplied: the kernel is deterministic.
#pragma once

#include "kernels/cuda/gemm_fused/hopper.cuh"
#include "kernels/cuda/gemm_fused/tensor_maps.h"
#include "kernels/cuda/launch.cuh"

namespace trireme::kernels::cuda {

// The epilogue of value = a op(b) (+ bias):
enum class Fusion : uint8_t {
  gelu,         // value is stored, d = gelu(value)
  gelu_slope,   // gelu'(value) is stored, d = gelu(value)
  gelu_grad,    // d = value gelu'(x), its column sums; recomputed = gelu(x)
  factor,       // d = value x, its column sums
  swiglu,       // gate | up = value is stored, d = silu(gate) up
  swiglu_grad,  // dgate | dup = value up silu'(gate) | value silu(gate); recomputed = silu(gate) up
  // Products of groups of rows (experts/grouped.cuh), w the weight of a row:
  plain,                 // d = value
  plain_grad,            // d = value
  weighted_swiglu,       // gate | up = value is stored, d = w silu(gate) up
  weighted_swiglu_grad,  // as swiglu_grad, times w; and the rows' sums of value silu(gate) up
  weight_grad,           // d (+)= value, a is [k, m], d is fp32
  weight_grad_bf16,      // the same, d is bf16
};
constexpr bool is_swiglu(Fusion f) { return f == Fusion::swiglu || f == Fusion::weighted_swiglu; }
constexpr bool is_swiglu_grad(Fusion f) {
  return f == Fusion::swiglu_grad || f == Fusion::weighted_swiglu_grad;
}
constexpr bool is_weight_grad(Fusion f) {
  return f == Fusion::weight_grad || f == Fusion::weight_grad_bf16;
}
constexpr bool is_plain(Fusion f) { return f == Fusion::plain || f == Fusion::plain_grad; }
constexpr bool has_row_weights(Fusion f) {
  return f == Fusion::weighted_swiglu || f == Fusion::weighted_swiglu_grad;
}
// The forward's b is a weight [n, k], the backward's [k, n].
constexpr bool is_backward(Fusion f) {
  return f == Fusion::gelu_grad || f == Fusion::factor || f == Fusion::plain_grad ||
         is_swiglu_grad(f) || is_weight_grad(f);
}

struct FusedProduct {
  CUtensorMap a, b;                // read in boxes of a_box, b_box or b_box_by_columns
  int m, n, k;                     // of the product; n is 2 F of swiglu and F of swiglu_grad
  int clusters_m, tiles_n, tiles;  // in tiles of a cluster
  int rows_together;               // rows of clusters that are processed together
  const bf16* bias;                // gelu, gelu_slope: optional [n]
  bf16* value;                     // forward: [m, n], written
  const bf16* x;  // gelu_grad, factor: [m, n]; swiglu_grad: [m, 2 n], gate | up; may be d
  bf16* d;
  bf16* recomputed;  // backward, optional
  int64_t value_stride, x_stride, d_stride, recomputed_stride;
  // Optional: partial sums of the columns of d in fp32. gelu_grad: [tiles along m, n];
  // factor: [3 tiles along m, n].
  float* sums;
};

namespace fused {

constexpr int tile_m = 128, tile_n = 256, tile_k = 64;
constexpr int blocks_of_cluster = 2;  // along m
constexpr int half_m = tile_m / 2;    // rows of one multiplying warpgroup
constexpr int half_n = tile_n / 2;    // columns of the product whose b one block copies
constexpr int stages = 3;
constexpr int group_threads = 128;
constexpr int threads = 3 * group_threads;
constexpr int finishing_warps = 3;
constexpr int swizzled_columns = 64;  // of a tile of bf16 in shared memory: 128 bytes

constexpr Box a_box = {tile_m, tile_k};
constexpr Box b_box = {half_n, tile_k}, b_box_by_columns = {tile_k, swizzled_columns};

constexpr uint32_t a_bytes = tile_m * tile_k * 2, b_bytes = tile_n * tile_k * 2;
constexpr uint32_t row_bytes = tile_n * 2;

// Shared memory, from an address that is a multiple of 1024.
constexpr uint32_t a_begin = 0;
constexpr uint32_t b_begin = a_begin + stages * a_bytes;
constexpr uint32_t values_begin = b_begin + stages * b_bytes;       // [tile_m][tile_n] bf16
constexpr uint32_t bias_begin = values_begin + tile_m * row_bytes;  // [2][tile_n] bf16
constexpr uint32_t barriers_begin = bias_begin + 2 * row_bytes;
constexpr uint32_t barriers = 2 * stages + 12;
constexpr uint32_t shared_bytes = barriers_begin + 8 * barriers + 1024;  // the start is rounded up

struct Shared {
  uint32_t base;
  __device__ uint32_t a(int stage) const { return base + a_begin + stage * a_bytes; }
  __device__ uint32_t b(int stage) const { return base + b_begin + stage * b_bytes; }
  __device__ uint32_t values(int row) const { return base + values_begin + row * row_bytes; }
  // Operands are complete, operands were read, values are complete, values were read.
  __device__ uint32_t full(int stage) const { return base + barriers_begin + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(stages + stage); }
  __device__ uint32_t made(int half) const { return full(2 * stages + half); }
  __device__ uint32_t taken(int half) const { return full(2 * stages + 2 + half); }
  // weight_grad: a place of values can be filled, was filled.
  __device__ uint32_t ready(int half, int place) const {
    return full(2 * stages + 4 + 2 * half + place);
  }
  __device__ uint32_t filled(int half, int place) const { return ready(2 + half, place); }
};

// The position of a 16-byte chunk (columns from 8 chunk on) in a row of the values: the chunks of a
// row are permuted by the row, so that neither writes of a column of chunks nor reads of a row have
// bank conflicts.
__device__ inline uint32_t swizzled(int row, int chunk) {
  return static_cast<uint32_t>((chunk ^ (row & 7)) << 4);
}

struct Tile {
  int row, column;  // its first, of this block
  int group = 0;    // weight_grad: of rows, with its own d
};
// How many rows of clusters are processed together. A small b stays in the cache, and a is read
// once; with a large b, short rows of tiles must share the part that is in the cache.
constexpr int rows_together(int64_t bytes_of_b) { return bytes_of_b <= 16 << 20 ? 16 : 8; }

// Tile number `at` of a product, for this block of the cluster.
__device__ inline Tile tile_at(int at, int clusters_m, int tiles_n, int together, uint32_t rank) {
  const int of_group = together * tiles_n;
  const int group = at / of_group, at_group = at % of_group;
  const int first = group * together;
  const int rows = min(together, clusters_m - first);
  const int row = (first + at_group % rows) * blocks_of_cluster + static_cast<int>(rank);
  return {row * tile_m, at_group / rows * tile_n};
}

// The tiles of a block in turn. Neighbours in time share operands in the cache.
class Tiles {
 public:
  __device__ Tiles(const FusedProduct& p, uint32_t rank)
      : p_(p), rank_(rank), at_(static_cast<int>(blockIdx.x) / blocks_of_cluster) {}
  __device__ bool has_tile() const { return at_ < p_.tiles; }
  __device__ void advance() { at_ += static_cast<int>(gridDim.x) / blocks_of_cluster; }
  __device__ Tile tile() const {
    return tile_at(at_, p_.clusters_m, p_.tiles_n, p_.rows_together, rank_);
  }
  __device__ int end_row() const { return p_.m; }  // rows from here on are not written
  __device__ int steps() const { return (p_.k + tile_k - 1) / tile_k; }  // along k, of this tile

 private:
  const FusedProduct& p_;
  uint32_t rank_;
  int at_;
};

}  // namespace fused
}  // namespace trireme::kernels::cuda
