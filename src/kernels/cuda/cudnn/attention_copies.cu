// SPDX-License-Identifier: Apache-2.0
// Memory-bound: a thread moves eight elements.
#include <math_constants.h>

#include "kernels/cuda/cudnn/attention_copies.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int copy_threads = 256;
constexpr int at_once = 8;

__device__ void load_eight(const HeadView& from, int64_t element, float (&values)[at_once]) {
  if (from.is_bf16) {
    unpack<bf16>(load_bits(static_cast<const bf16*>(from.data) + element), values);
    return;
  }
  const float* p = static_cast<const float*>(from.data) + element;
  const float4 a = *reinterpret_cast<const float4*>(p);
  const float4 b = *reinterpret_cast<const float4*>(p + 4);
  values[0] = a.x, values[1] = a.y, values[2] = a.z, values[3] = a.w;
  values[4] = b.x, values[5] = b.y, values[6] = b.z, values[7] = b.w;
}

__global__ void __launch_bounds__(copy_threads)
    copy_heads_kernel(HeadView to, HeadView from, HeadCount count, bool accumulates) {
  const int64_t units = count.K / at_once;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * copy_threads + threadIdx.x;
  if (i >= count.rows * count.heads * units) return;
  const int64_t column = i % units * at_once, head = i / units % count.heads;
  const int64_t row = i / units / count.heads;
  float values[at_once] = {};
  if (from.data != nullptr) {
    load_eight(from, row * from.row_stride + head * from.head_stride + column, values);
  }
  const int64_t at = row * to.row_stride + head * to.head_stride + column;
  if (accumulates) {
    float old[at_once];
    load_eight(to, at, old);
#pragma unroll
    for (int e = 0; e < at_once; ++e) values[e] += old[e];
  }
  if (to.is_bf16) {
    store_bits(static_cast<bf16*>(to.data) + at, pack<bf16>(values));
  } else {
    store_floats(static_cast<float*>(to.data) + at, values);
  }
}

__global__ void __launch_bounds__(copy_threads)
    clear_lse_kernel(float* lse, int64_t heads, int64_t tokens, int64_t first, int64_t rows) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * copy_threads + threadIdx.x;
  if (i < heads * rows) lse[i / rows * tokens + first + i % rows] = -CUDART_INF_F;
}

}  // namespace

void copy_heads(const device::CudaStream& stream, const HeadView& to, const HeadView& from,
                const HeadCount& count, bool accumulates) {
  const int64_t threads = count.rows * count.heads * (count.K / at_once);
  if (threads == 0) return;
  copy_heads_kernel<<<grid_of(ceil_div(threads, copy_threads)), copy_threads, 0, stream.handle()>>>(
      to, from, count, accumulates);
  check_launch("attention copy");
}

void clear_lse(const device::CudaStream& stream, float* lse, int64_t heads, int64_t tokens,
               int64_t first, int64_t rows) {
  if (rows == 0) return;
  clear_lse_kernel<<<grid_of(ceil_div(heads * rows, copy_threads)), copy_threads, 0,
                     stream.handle()>>>(lse, heads, tokens, first, rows);
  check_launch("attention clear");
}

}  // namespace trireme::kernels::cuda
