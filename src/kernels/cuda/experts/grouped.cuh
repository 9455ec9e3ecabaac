// SPDX-License-Identifier: Apache-2.0
// Products of groups of rows, each with the matrix of its expert, on the parts of the fused
// products (gemm_fused.cuh): the same tiles, warps and epilogues. Only the tiles' order and the
// addresses of operands differ.
//
// Starts of groups are in device memory. Every block of the persistent grid reads them itself, so
// that the host knows no counts. All starts are multiples of 128, the rows of a tile.
//
// Rows in groups (forward, input gradient): the two blocks of a cluster take adjacent tiles of
// rows. If both are in one group they share b as in a single product; otherwise each copies its own
// b, and the barriers count the same bytes. After an odd last tile the second block works on rows
// that do not exist, and writes nothing.
//
// Weight gradients: the tiles of one group's d after those of the other, summed along the group's
// rows. Both operands are contiguous along the other dimension.
//
// Results without an activation leave shared memory by the copy engine (gemm_fused_results.cuh).
#pragma once

#include "kernels/cuda/gemm_fused/gemm_fused.cuh"

namespace trireme::kernels::cuda {

// In FusedProduct, m is the number of rows that the operands have room for, and clusters_m and
// tiles are not used; for weight gradients, they are those of one group, and k is not used.
struct GroupedProduct : FusedProduct {
  const int32_t* starts;  // [groups + 1]; null: one group of all rows
  int groups;
  // The part that this launch computes; the first is a multiple of 256. For weight gradients, the
  // end is the operands'.
  int first_row, end_row;
  const float* row_weight;
  float* row_sums;  // weighted_swiglu_grad: partial sums [tiles along n, row_sums_stride]
  int64_t row_sums_stride;
  CUtensorMap results;  // plain, plain_grad, weight_grad: d, in boxes of result_box or gradient_box
  int64_t d_group_stride;  // weight_grad_bf16: elements
  bool adds;               // to d
};

namespace fused {

constexpr Box result_box = {half_m, swizzled_columns}, gradient_box = {half_m, 32};
constexpr int max_shared_groups = 2047, max_sorted_groups = 512;
constexpr uint32_t starts_begin = barriers_begin + 8 * barriers;
constexpr uint32_t grouped_shared_bytes = starts_begin + 8 * (max_shared_groups + 1) + 1024;
static_assert(barriers % 2 == 0 && grouped_shared_bytes <= 227 * 1024);

// Returns the group that has this row. REQUIRES: starts[0] <= row < starts[groups].
__device__ inline int group_of(const int32_t* starts, int groups, int row) {
  int low = 0, high = groups;  // starts[low] <= row < starts[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (starts[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Starts of groups, and the order in which their gradients are computed (null: that of groups).
struct GroupList {
  const int32_t* starts;
  const int32_t* order;

  __device__ int rows(int group) const { return starts[group + 1] - starts[group]; }
};

// Called by all threads of a block; a barrier must follow. `memory` is shared: 2 (groups + 1)
// numbers. Large groups of weight gradients come first, so that no block begins a long sum when the
// others end.
template <Fusion fusion>
__device__ GroupList list_groups(const GroupedProduct& p, int32_t* memory,
                                 int max_groups = max_shared_groups) {
  if (p.groups > max_groups) return {p.starts, nullptr};
  const int first = static_cast<int>(threadIdx.x);
  for (int i = first; i <= p.groups; i += threads) {
    memory[i] = p.starts != nullptr ? p.starts[i] : (i == 0 ? 0 : p.end_row);
  }
  if (!is_weight_grad(fusion) || p.groups > max_sorted_groups) return {memory, nullptr};
  __syncthreads();
  int32_t* order = memory + p.groups + 1;
  const GroupList list = {memory, order};
  for (int group = first; group < p.groups; group += threads) {
    const int rows = list.rows(group);
    int larger = 0;  // groups that come before
    for (int other = 0; other < p.groups; ++other) {
      larger += list.rows(other) + (other < group ? 1 : 0) > rows ? 1 : 0;
    }
    order[larger] = group;
  }
  return list;
}

// As Tiles, over the rows that are there.
class GroupedTiles {
 public:
  __device__ GroupedTiles(const GroupedProduct& p, const GroupList& groups, uint32_t rank)
      : p_(p),
        starts_(groups.starts),
        rank_(rank),
        at_(static_cast<int>(blockIdx.x) / blocks_of_cluster),
        end_(min(groups.starts[p.groups], p.end_row)),
        clusters_m_(max(0, (end_ - p.first_row + rows_of_cluster - 1) / rows_of_cluster)) {}
  __device__ bool has_tile() const { return at_ < clusters_m_ * p_.tiles_n; }
  __device__ void advance() { at_ += static_cast<int>(gridDim.x) / blocks_of_cluster; }
  __device__ Tile tile() const {
    Tile tile = tile_at(at_, clusters_m_, p_.tiles_n, p_.rows_together, rank_);
    tile.row += p_.first_row;
    return tile;
  }
  __device__ int end_row() const { return end_; }
  __device__ int steps() const { return (p_.k + tile_k - 1) / tile_k; }

  // What the blocks of the cluster multiply by: the group of this block's rows, and whether it is
  // that of both.
  struct Groups {
    int own;
    bool is_common;
  };
  __device__ Groups groups(const Tile& tile) const {
    const int upper = tile.row - static_cast<int>(rank_) * tile_m, lower = upper + tile_m;
    const int of_upper = group_of(starts_, p_.groups, upper);
    const bool is_common = lower >= end_ || lower < starts_[of_upper + 1];
    return {is_common || rank_ == 0 ? of_upper : group_of(starts_, p_.groups, lower), is_common};
  }

 private:
  static constexpr int rows_of_cluster = tile_m * blocks_of_cluster;

  const GroupedProduct& p_;
  const int32_t* starts_;
  uint32_t rank_;
  int at_, end_, clusters_m_;
};

// The tiles of the gradients of one group after the other.
class GradientTiles {
 public:
  __device__ GradientTiles(const GroupedProduct& p, const GroupList& groups, uint32_t rank)
      : p_(p), groups_(groups), rank_(rank), at_(static_cast<int>(blockIdx.x) / blocks_of_cluster) {
    settle();
  }
  __device__ bool has_tile() const { return number_ < p_.groups; }
  __device__ void advance() {
    at_ += static_cast<int>(gridDim.x) / blocks_of_cluster;
    settle();
  }
  __device__ Tile tile() const {
    Tile tile = tile_at(at_, p_.clusters_m, p_.tiles_n, p_.rows_together, rank_);
    tile.group = group();
    return tile;
  }
  __device__ int end_row() const { return p_.m; }
  // The first row of the group. An empty one has one step, of rows outside of the operands, which
  // are copied as zeros.
  __device__ int first() const {
    return groups_.rows(group()) > 0 ? groups_.starts[group()] : p_.end_row;
  }
  __device__ int steps() const { return max(1, groups_.rows(group()) / tile_k); }

 private:
  __device__ int group() const {
    return groups_.order == nullptr ? number_ : groups_.order[number_];
  }
  __device__ void settle() {
    while (at_ >= p_.tiles) {
      at_ -= p_.tiles;
      ++number_;
    }
  }

  const GroupedProduct& p_;
  GroupList groups_;
  uint32_t rank_;
  int at_;
  int number_ = 0;  // of the group in the order
};

// Registers of threads that multiply, and of the others.
struct Registers {
  int multiplying, others;
};

template <Fusion fusion>
using TilesOfGroups = std::conditional_t<is_weight_grad(fusion), GradientTiles, GroupedTiles>;

}  // namespace fused
}  // namespace trireme::kernels::cuda
