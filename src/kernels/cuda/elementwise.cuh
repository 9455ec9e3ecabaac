// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels: a grid over the chunks of a matrix. Rows may have any stride; a chunk is W
// neighbours of one row, moved 16 bytes at a time if the operands are aligned, otherwise one
// element at a time.
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.cuh"

namespace trireme::kernels::cuda {

// W elements of T. With W > 1 and count == W, `p` must be aligned to 16 bytes, or to the chunk if
// that is smaller. A chunk at the end of a row has count < W.
template <typename T, int W>
struct alignas(W * sizeof(T) < 16 ? W * sizeof(T) : 16) Chunk {
  T at[W];

  __device__ static Chunk load(const T* p) { return *reinterpret_cast<const Chunk*>(p); }
  __device__ static Chunk load(const T* p, int64_t count) {
    if (count >= W) return load(p);
    Chunk chunk;
#pragma unroll
    for (int i = 0; i < W; ++i) chunk.at[i] = i < count ? p[i] : T{};
    return chunk;
  }

  __device__ void store(T* p) const { *reinterpret_cast<Chunk*>(p) = *this; }
  __device__ void store(T* p, int64_t count) const {
    if (count >= W) return store(p);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      if (i < count) p[i] = at[i];
    }
  }
};

// Elements of a chunk, such that the narrower of two types fills 16 bytes.
template <typename A, typename B>
constexpr int chunk_width = std::max(Vec<A>::width, Vec<B>::width);

// The rows and columns that a kernel covers.
struct Extent {
  int64_t rows = 0, cols = 0;
};

// One long row if both tensors are contiguous. REQUIRES: same shape.
inline Extent common_extent(const device::ConstTensor& a, const device::ConstTensor& b) {
  if (a.elements() == 0) return {};
  if (a.is_contiguous() && b.is_contiguous()) return {1, a.elements()};
  return {a.rows(), a.cols()};
}

// Returns whether chunks of this tensor, cut at multiples of 16 bytes from the start of its rows,
// are aligned to 16 bytes.
inline bool has_aligned_rows(const device::ConstTensor& t, const Extent& extent) {
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 &&
         (extent.rows <= 1 || t.row_stride * base::size_of(t.dtype) % 16 == 0);
}

struct LaunchShape {
  dim3 grid, block;
};

// 256 threads in the shape of the matrix: wide for long rows, high for short ones.
inline LaunchShape launch_shape(const Extent& extent, int chunk_elements) {
  constexpr int threads = 256;
  constexpr int64_t max_grid_x = int64_t{1} << 30, max_grid_y = 65535;
  const int64_t chunks = ceil_div(extent.cols, chunk_elements);
  int wide = 1;
  while (wide < chunks && wide < threads) wide *= 2;
  const int high = threads / wide;
  const int64_t grid_x = std::min(ceil_div(chunks, wide), max_grid_x);
  const int64_t grid_y = std::min(ceil_div(extent.rows, high), max_grid_y);
  return {dim3(static_cast<unsigned>(grid_x), static_cast<unsigned>(grid_y)),
          dim3(static_cast<unsigned>(wide), static_cast<unsigned>(high))};
}

// Calls body(row, column, count) for every chunk of this thread, in a grid of launch_shape().
template <int W, typename Body>
__device__ void for_each_chunk(const Extent& extent, const Body& body) {
  const int64_t row_step = int64_t{gridDim.y} * blockDim.y;
  const int64_t col_step = int64_t{gridDim.x} * blockDim.x * W;
  const int64_t first_row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  const int64_t first_col = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * W;
  for (int64_t row = first_row; row < extent.rows; row += row_step) {
    for (int64_t col = first_col; col < extent.cols; col += col_step) {
      body(row, col, extent.cols - col);
    }
  }
}

}  // namespace trireme::kernels::cuda
