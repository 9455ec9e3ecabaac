// SPDX-License-Identifier: Apache-2.0
// d = x transposed, for `count` matrices one after the other. Bound by memory: codes are moved in
// tiles of 128 x 128 as quantize does (code_tile.cuh); the few scales of a weight, and what is not
// aligned, in tiles of 32 x 32.
#include "kernels/cuda/quantize/code_tile.cuh"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int small_side = 32;
constexpr int small_rows = 8;  // of threads

struct TransposeParams {
  const void* x;
  void* d;
  int64_t x_stride, d_stride;
  int64_t rows, cols;  // of a matrix
  int64_t row_tiles, col_tiles;
  bool is_d_aligned;  // to 16 bytes
};

// The tile of a thread block: all tiles of a matrix, then those of the next.
struct TileOrigin {
  int64_t matrix, row, col;

  __device__ TileOrigin(const TransposeParams& p, int side) {
    const int64_t tile = blockIdx.x, of_matrix = p.row_tiles * p.col_tiles;
    matrix = tile / of_matrix;
    row = tile % of_matrix / p.col_tiles * side;
    col = tile % of_matrix % p.col_tiles * side;
  }
};

// REQUIRES: x is aligned to 8 bytes, and so are its rows and their length.
__global__ void __launch_bounds__(tile_threads) transpose_codes_kernel(TransposeParams p) {
  __shared__ CodeTile tile;
  const TilePlace place;
  const TileOrigin origin(p, tile_side);
  const int64_t row0 = origin.row + place.first_row(), col0 = origin.col + place.first_col();
  const auto* x =
      static_cast<const uint8_t*>(p.x) + (origin.matrix * p.rows + row0) * p.x_stride + col0;
  uint2 codes[part_side];
#pragma unroll
  for (int i = 0; i < part_side; ++i) {
    codes[i] = row0 + i < p.rows && col0 < p.cols
                   ? *reinterpret_cast<const uint2*>(x + i * p.x_stride)
                   : make_uint2(0, 0);
  }
  transpose_bytes(codes);
  tile.put(place, codes);
  __syncthreads();
  const auto left = [](int64_t end, int64_t begin) {
    return static_cast<int>(end - begin < tile_side ? end - begin : tile_side);
  };
  auto* d =
      static_cast<uint8_t*>(p.d) + (origin.matrix * p.cols + origin.col) * p.d_stride + origin.row;
  tile.store(d, p.d_stride, left(p.cols, origin.col), left(p.rows, origin.row), p.is_d_aligned);
}

template <typename U>
__global__ void __launch_bounds__(small_side* small_rows) transpose_kernel(TransposeParams p) {
  __shared__ U tile[small_side][small_side + 1];
  const TileOrigin origin(p, small_side);
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  const auto* x = static_cast<const U*>(p.x) + origin.matrix * p.rows * p.x_stride;
  auto* d = static_cast<U*>(p.d) + origin.matrix * p.cols * p.d_stride;
#pragma unroll
  for (int i = ty; i < small_side; i += small_rows) {
    const int64_t row = origin.row + i, col = origin.col + tx;
    if (row < p.rows && col < p.cols) tile[i][tx] = x[row * p.x_stride + col];
  }
  __syncthreads();
#pragma unroll
  for (int i = ty; i < small_side; i += small_rows) {
    const int64_t row = origin.row + tx, col = origin.col + i;
    if (row < p.rows && col < p.cols) d[col * p.d_stride + row] = tile[tx][i];
  }
}

bool is_aligned_to(const ConstTensor& t, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(bytes) == 0 &&
         t.row_stride % bytes == 0;
}

}  // namespace

void transpose(Stream& stream, const TransposeArgs& args) {
  const int64_t rows = args.x.rows() / args.count, cols = args.x.cols();
  if (rows == 0 || cols == 0) return;
  const bool are_codes = base::size_of(args.x.dtype) == 1;
  const bool is_tiled = are_codes && cols % part_side == 0 && is_aligned_to(args.x, part_side);
  const int64_t side = is_tiled ? tile_side : small_side;
  const TransposeParams p = {.x = args.x.data,
                             .d = args.d.data,
                             .x_stride = args.x.row_stride,
                             .d_stride = args.d.row_stride,
                             .rows = rows,
                             .cols = cols,
                             .row_tiles = ceil_div(rows, side),
                             .col_tiles = ceil_div(cols, side),
                             .is_d_aligned = is_aligned_to(args.d, 16)};
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  const unsigned grid = grid_of(args.count * p.row_tiles * p.col_tiles);
  const dim3 small_block(small_side, small_rows);
  if (is_tiled) {
    transpose_codes_kernel<<<grid, tile_threads, 0, handle>>>(p);
  } else if (are_codes) {
    transpose_kernel<uint8_t><<<grid, small_block, 0, handle>>>(p);
  } else {
    transpose_kernel<uint32_t><<<grid, small_block, 0, handle>>>(p);
  }
  check_launch("transpose");
}

}  // namespace trireme::kernels::cuda
