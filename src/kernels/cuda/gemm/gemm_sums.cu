// SPDX-License-Identifier: Apache-2.0
// sum[i] += sum over k of op(a)[i, k]: the bias gradient that goes with a product. Reads a
// once. Sums of columns (a stored [k, m]) take two kernels: blocks sum a chunk of rows each into
// partials, then the chunks are added in their order. Chunks depend on the shape only.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/gemm/gemm_kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int warps = 8;
constexpr int sum_threads = warps * warp_size;
constexpr int64_t min_chunk_rows = 128;

// partials[chunk, c] = sum over the chunk's rows of a[row, c]. Block (x: column tile, y: chunk);
// lane l has W columns, warp w every eighth row.
template <typename T, int W>
__global__ void __launch_bounds__(sum_threads)
    column_sums_kernel(const T* a, int64_t stride, int64_t rows, int64_t cols, int64_t chunk_rows,
                       float* partials) {
  __shared__ float sums[warps][warp_size * W];
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int64_t tile0 = static_cast<int64_t>(blockIdx.x) * (warp_size * W);
  const int64_t col = tile0 + lane * W;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * chunk_rows;
  const int64_t last = min(first + chunk_rows, rows);

  float sum[W] = {};
  if (col < cols) {
#pragma unroll 4
    for (int64_t row = first + warp; row < last; row += warps) {
      float value[W];
      load_values(a + row * stride + col, value);
#pragma unroll
      for (int i = 0; i < W; ++i) sum[i] += value[i];
    }
  }
#pragma unroll
  for (int i = 0; i < W; ++i) sums[warp][i * warp_size + lane] = sum[i];
  __syncthreads();
  // Column lane * W + i of the tile is at i * 32 + lane.
  for (int c = static_cast<int>(threadIdx.x); c < warp_size * W; c += sum_threads) {
    if (tile0 + c >= cols) continue;
    const int at = c % W * warp_size + c / W;
    float total = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) total += sums[w][at];
    partials[static_cast<int64_t>(blockIdx.y) * cols + tile0 + c] = total;
  }
}

// sum[c] += the partials of column c. A block has 32 columns; warp w adds every eighth chunk.
template <typename S>
__global__ void __launch_bounds__(sum_threads)
    add_partials_kernel(const float* partials, int64_t chunks, int64_t cols, S* sum) {
  __shared__ float sums[warps][warp_size];
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int64_t col = static_cast<int64_t>(blockIdx.x) * warp_size + lane;
  float part = 0;
  if (col < cols) {
#pragma unroll 4
    for (int64_t chunk = warp; chunk < chunks; chunk += warps) part += partials[chunk * cols + col];
  }
  sums[warp][lane] = part;
  __syncthreads();
  if (warp != 0 || col >= cols) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < warps; ++w) total += sums[w][lane];
  store(sum + col, load(sum + col) + total);
}

// sum[row] += sum of a[row, .]: a warp a row.
template <typename T, typename S, int W>
__global__ void __launch_bounds__(sum_threads)
    row_sums_kernel(const T* a, int64_t stride, int64_t rows, int64_t cols, S* sum) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
  if (row >= rows) return;  // the whole warp
  float part[W] = {};
#pragma unroll 4
  for (int64_t col = static_cast<int64_t>(lane) * W; col < cols; col += warp_size * W) {
    float value[W];
    load_values(a + row * stride + col, value);
#pragma unroll
    for (int i = 0; i < W; ++i) part[i] += value[i];
  }
  float total = 0;
#pragma unroll
  for (int i = 0; i < W; ++i) total += part[i];
  total = warp_sum(total);
  if (lane == 0) store(sum + row, load(sum + row) + total);
}

template <typename T, int W>
void launch_column_sums(device::CudaStream& stream, const ConstTensor& a, const Tensor& sum) {
  const Tensor workspace = stream.workspace();
  const int64_t max_chunks =
      std::min<int64_t>(65535, workspace.bytes() / (a.cols() * int64_t{sizeof(float)}));
  TRIREME_CHECK(max_chunks > 0, "gemm: sums of {} columns do not fit a workspace of {} bytes",
                a.cols(), workspace.bytes());
  const int64_t chunk_rows = std::max(min_chunk_rows, ceil_div(a.rows(), max_chunks));
  const int64_t chunks = ceil_div(a.rows(), chunk_rows);
  const dim3 grid(static_cast<unsigned>(ceil_div(a.cols(), warp_size * W)),
                  static_cast<unsigned>(chunks));
  auto* partials = data<float>(workspace);
  column_sums_kernel<T, W><<<grid, sum_threads, 0, stream.handle()>>>(
      data<T>(a), a.row_stride, a.rows(), a.cols(), chunk_rows, partials);
  check_launch("column sums");
  with_gradient_type(sum.dtype, [&](auto* s) {
    using S = std::remove_pointer_t<decltype(s)>;
    add_partials_kernel<S>
        <<<static_cast<unsigned>(ceil_div(a.cols(), warp_size)), sum_threads, 0, stream.handle()>>>(
            partials, chunks, a.cols(), data<S>(sum));
  });
  check_launch("column sums of chunks");
}

template <typename T, int W>
void launch_row_sums(device::CudaStream& stream, const ConstTensor& a, const Tensor& sum) {
  with_gradient_type(sum.dtype, [&](auto* s) {
    using S = std::remove_pointer_t<decltype(s)>;
    if constexpr (mixes_16_bits<T, S>) return refuse_mixed_16_bits("gemm");
    row_sums_kernel<T, S, W>
        <<<static_cast<unsigned>(ceil_div(a.rows(), warps)), sum_threads, 0, stream.handle()>>>(
            data<T>(a), a.row_stride, a.rows(), a.cols(), data<S>(sum));
  });
  check_launch("row sums");
}

}  // namespace

void add_row_sums(device::CudaStream& stream, const ConstTensor& a, bool trans, const Tensor& sum) {
  TRIREME_CHECK(sum.is_contiguous(), "gemm: sums with stride {}, not 1", sum.row_stride);
  if (a.rows() == 0 || a.cols() == 0) return;
  with_real_type(a.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const auto launch = [&](auto width) {
      if (trans) {
        launch_column_sums<T, decltype(width)::value>(stream, a, sum);
      } else {
        launch_row_sums<T, decltype(width)::value>(stream, a, sum);
      }
    };
    if (is_vectorisable(a)) {
      launch(std::integral_constant<int, Vec<T>::width>());
    } else {
      launch(std::integral_constant<int, 1>());
    }
  });
}

}  // namespace trireme::kernels::cuda
