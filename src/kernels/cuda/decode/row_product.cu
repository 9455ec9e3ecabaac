// SPDX-License-Identifier: Apache-2.0
// y = x weight^T + bias + residual for few rows of x, limited by the time to read the weight once.
//
// A warp computes one or two columns of y for up to eight rows: its lanes read 16 bytes of the
// weight each, several in flight, and the same elements of x, which are in cache. A lane adds its
// products in the order of the inner index, then the lanes are summed in a fixed order; so an
// element's bits do not depend on the number of rows. More rows are further blocks; a block with
// fewer rows than its kernel computes the last one repeatedly and stores it once.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int warps = 4;  // of a block
constexpr int max_rows = 8;
constexpr int in_flight = 4;  // vectors of the weight that a lane loads at once

struct Args {
  const void* x;
  const void* weight;
  int64_t x_stride, weight_stride;
  InRows bias, residual;
  OutRows y;
  int64_t rows, cols, depth;
};

template <typename T, int width>
struct Elements {
  float at[width];

  __device__ static Elements load(const T* p) {
    Elements e;
    load_values<width>(p, e.at);
    return e;
  }
};

template <typename T>
__device__ inline uint4 load_once(const T* p) {
  return __ldcs(reinterpret_cast<const uint4*>(p));
}

// Adds the products of W elements of the weight's row with those of R rows of x.
template <int R, int W, typename T>
__device__ inline void add_products(const T* x, const int64_t (&offsets)[R], const float (&w)[W],
                                    float (&sums)[R]) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const auto a = Elements<T, W>::load(x + offsets[r]);
#pragma unroll
    for (int i = 0; i < W; ++i) sums[r] = __fmaf_rn(a.at[i], w[i], sums[r]);
  }
}

// C columns from `col` on, for R rows of x at these offsets.
template <int R, int C, typename T, int W>
__device__ inline void multiply(const Args& args, const T* x, const int64_t (&offsets)[R],
                                int64_t col, float (&sums)[C][R]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const T* weight = static_cast<const T*>(args.weight) + col * args.weight_stride;
  const int64_t vectors = args.depth / W;
  int64_t v = lane;
  if constexpr (W > 1) {
    for (; v + (in_flight - 1) * warp_size < vectors; v += in_flight * warp_size) {
      uint4 bits[C][in_flight];
#pragma unroll
      for (int c = 0; c < C; ++c) {
#pragma unroll
        for (int i = 0; i < in_flight; ++i) {
          bits[c][i] = load_once(weight + c * args.weight_stride + (v + i * warp_size) * W);
        }
      }
#pragma unroll
      for (int i = 0; i < in_flight; ++i) {
#pragma unroll
        for (int c = 0; c < C; ++c) {
          float w[W];
          unpack<T>(bits[c][i], w);
          add_products<R, W>(x + (v + i * warp_size) * W, offsets, w, sums[c]);
        }
      }
    }
  }
  for (; v < vectors; v += warp_size) {
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const auto w = Elements<T, W>::load(weight + c * args.weight_stride + v * W);
      add_products<R, W>(x + v * W, offsets, w.at, sums[c]);
    }
  }
}

template <typename T, int R, int C, int W>
__global__ void __launch_bounds__(warps* warp_size) product_kernel(Args args, int64_t first_row) {
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size) * C;
  const int64_t row = first_row + static_cast<int64_t>(blockIdx.y) * R;
  if (col >= args.cols) return;
  const int64_t rows = min(static_cast<int64_t>(R), args.rows - row);
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
  int64_t offsets[R];
#pragma unroll
  for (int r = 0; r < R; ++r) offsets[r] = min(static_cast<int64_t>(r), rows - 1) * args.x_stride;
  float sums[C][R] = {};
  if (C == 1 || col + C <= args.cols) {
    multiply<R, C, T, W>(args, x, offsets, col, sums);
  } else {
    float first[1][R] = {};
    multiply<R, 1, T, W>(args, x, offsets, col, first);
#pragma unroll
    for (int r = 0; r < R; ++r) sums[0][r] = first[0][r];
  }
  // Each result is completed and stored by one lane.
  static_assert(C * R <= warp_size);
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  float value = 0;
#pragma unroll
  for (int c = 0; c < C; ++c) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const float sum = warp_sum(sums[c][r]);
      if (lane == c * R + r) value = sum;
    }
  }
  const int c = lane / R, r = lane % R;
  if (c >= C || r >= rows || col + c >= args.cols) return;
  if (args.bias.data != nullptr) value += args.bias.get(0, col + c);
  if (args.residual.data != nullptr) value += args.residual.get(row + r, col + c);
  args.y.set(row + r, col + c, value);
}

template <typename T, int R, int W>
void launch(const Args& args, int64_t first_row, int64_t groups, cudaStream_t stream) {
  constexpr int C = R >= 4 ? 2 : 1;
  const dim3 grid(grid_of(ceil_div(args.cols, warps * C)), static_cast<unsigned>(groups));
  product_kernel<T, R, C, W><<<grid, warps * warp_size, 0, stream>>>(args, first_row);
}

template <typename T, int W>
void launch_all(const Args& args, cudaStream_t stream) {
  constexpr int64_t max_groups = 65535;  // blocks in the second dimension of a grid
  int64_t row = 0;
  while (args.rows - row >= max_rows) {
    const int64_t groups = std::min(max_groups, (args.rows - row) / max_rows);
    launch<T, max_rows, W>(args, row, groups, stream);
    row += groups * max_rows;
  }
  const int64_t rest = args.rows - row;
  if (rest > 4) {
    launch<T, max_rows, W>(args, row, 1, stream);
  } else if (rest > 2) {
    launch<T, 4, W>(args, row, 1, stream);
  } else if (rest == 2) {
    launch<T, 2, W>(args, row, 1, stream);
  } else if (rest == 1) {
    launch<T, 1, W>(args, row, 1, stream);
  }
}

}  // namespace

void row_product(Stream& stream, const RowProductArgs& args) {
  const Args a{.x = args.x.data,
               .weight = args.weight.data,
               .x_stride = args.x.row_stride,
               .weight_stride = args.weight.row_stride,
               .bias = in_vector(args.bias),
               .residual = in_rows(args.residual),
               .y = out_rows(args.y),
               .rows = args.x.rows(),
               .cols = args.weight.rows(),
               .depth = args.x.cols()};
  if (a.rows == 0 || a.cols == 0) return;
  cudaStream_t handle = device::cuda_stream(stream).handle();
  const bool is_fast = is_vectorisable(args.x) && is_vectorisable(args.weight);
  with_real_type(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    is_fast ? launch_all<T, Vec<T>::width>(a, handle) : launch_all<T, 1>(a, handle);
  });
  check_launch("row_product");
}

}  // namespace trireme::kernels::cuda
