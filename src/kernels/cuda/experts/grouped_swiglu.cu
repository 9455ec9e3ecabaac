// SPDX-License-Identifier: Apache-2.0
// act = row_weight silu(gate) up, and the gradients from the gradient of act, for products that do
// not compute them. Both are bound by memory: a thread has 16 bytes of each operand at a time.
// Largest magnitudes are those of the rounded results.
#include "kernels/cuda/experts/grouped_swiglu.h"

#include <algorithm>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/quantize/float8.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int threads_of_swiglu = 256;
constexpr int warps_of_swiglu = threads_of_swiglu / warp_size;

// The magnitude of a value as T stores it.
template <typename T>
__device__ uint32_t stored_magnitude(float value) {
  T stored;
  store(&stored, value);
  return magnitude_bits(load(&stored));
}

template <typename T, int W>
__global__ void __launch_bounds__(threads_of_swiglu)
    weighted_swiglu_kernel(Extent extent, InRows gate_up, const float* row_weight,
                           const int32_t* end, OutRows act, uint32_t* amax) {
  extent.rows = min(extent.rows, static_cast<int64_t>(*end));
  uint32_t largest = 0;
  for_each_chunk<W>(extent, [&](int64_t row, int64_t column, int64_t /*count*/) {
    float gate[W], up[W];
    load_values(gate_up.row<T>(row) + column, gate);
    load_values(gate_up.row<T>(row) + extent.cols + column, up);
    const float weight = row_weight[row];
#pragma unroll
    for (int j = 0; j < W; ++j) {
      gate[j] = silu(gate[j]).value * up[j] * weight;
      largest = max(largest, stored_magnitude<T>(gate[j]));
    }
    store_values(act.row<T>(row) + column, gate);
  });
  if (amax == nullptr) return;
  // Blocks are two-dimensional, and their warps are rows of lanes.
  largest = __reduce_max_sync(0xffffffffU, largest);
  if ((threadIdx.y * blockDim.x + threadIdx.x) % warp_size == 0) raise_bits(amax, largest);
}

struct SwigluGradient {
  InRows dact, gate_up;
  const float* row_weight;
  const int32_t* end;
  int64_t rows, F;
  OutRows dgate_up, act;
  float* dweight;
  uint32_t* amax;
};

// A warp has a row.
template <typename T, int W>
__global__ void __launch_bounds__(threads_of_swiglu) swiglu_gradient_kernel(SwigluGradient p) {
  __shared__ uint32_t shared[warps_of_swiglu];
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int64_t warp = threadIdx.x / warp_size;
  const int64_t end = min(p.rows, static_cast<int64_t>(*p.end));
  uint32_t largest = 0;
  for (int64_t row = blockIdx.x * int64_t{warps_of_swiglu} + warp; row < end;
       row += static_cast<int64_t>(gridDim.x) * warps_of_swiglu) {
    const float weight = p.row_weight[row];
    float sum = 0;
    for (int64_t column = lane * W; column < p.F; column += warp_size * W) {
      float v[W], gate[W], up[W], act[W];
      load_values(p.dact.row<T>(row) + column, v);
      load_values(p.gate_up.row<T>(row) + column, gate);
      load_values(p.gate_up.row<T>(row) + p.F + column, up);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const Silu s = silu(gate[j]);
        const float y = s.value * up[j];
        sum = fmaf(v[j], y, sum);
        v[j] *= weight;
        gate[j] = v[j] * up[j] * s.derivative;
        up[j] = v[j] * s.value;
        act[j] = y * weight;
        largest = max(largest, max(stored_magnitude<T>(gate[j]), stored_magnitude<T>(up[j])));
      }
      store_values(p.dgate_up.row<T>(row) + column, gate);
      store_values(p.dgate_up.row<T>(row) + p.F + column, up);
      if (p.act.data != nullptr) store_values(p.act.row<T>(row) + column, act);
    }
    sum = warp_sum(sum);
    if (lane == 0) p.dweight[row] = sum;
  }
  if (p.amax != nullptr) raise_by_block(p.amax, largest, shared);
}

}  // namespace

void grouped_swiglu(Stream& stream, const GroupedSwigluArgs& args) {
  const Extent extent = {args.act.rows(), args.act.cols()};
  if (extent.rows == 0 || extent.cols == 0) return;
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  with_real_type(args.act.dtype, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    constexpr int W = Vec<E>::width;
    // Both halves of gate_up's rows must be aligned.
    const bool is_fast = is_vectorisable(args.gate_up) && is_vectorisable(args.act);
    const LaunchShape shape = launch_shape(extent, is_fast ? W : 1);
    const auto kernel = is_fast ? weighted_swiglu_kernel<E, W> : weighted_swiglu_kernel<E, 1>;
    kernel<<<shape.grid, shape.block, 0, handle>>>(
        extent, in_rows(args.gate_up), data<float>(args.row_weight), data<int32_t>(args.end),
        out_rows(args.act), data<uint32_t>(args.amax));
  });
  check_launch("grouped_swiglu");
}

void grouped_swiglu_gradient(device::CudaStream& stream, const GroupedSwigluBackwardArgs& args) {
  const SwigluGradient p = {.dact = in_rows(args.dact),
                            .gate_up = in_rows(args.gate_up),
                            .row_weight = data<float>(args.row_weight),
                            .end = data<int32_t>(args.starts) + args.starts.elements() - 1,
                            .rows = args.dact.rows(),
                            .F = args.dact.cols(),
                            .dgate_up = out_rows(args.dgate_up),
                            .act = out_rows(args.act),
                            .dweight = data<float>(args.dweight),
                            .amax = data<uint32_t>(args.amax)};
  const int64_t blocks = std::min(ceil_div(p.rows, warps_of_swiglu),
                                  int64_t{16} * stream.cuda_device().multiprocessors());
  with_real_type(args.dact.dtype, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    constexpr int W = Vec<E>::width;
    const bool is_fast = is_vectorisable(args.dact) && is_vectorisable(args.gate_up) &&
                         is_vectorisable(args.dgate_up) && (!args.act || is_vectorisable(args.act));
    const auto kernel = is_fast ? swiglu_gradient_kernel<E, W> : swiglu_gradient_kernel<E, 1>;
    kernel<<<grid_of(blocks), threads_of_swiglu, 0, stream.handle()>>>(p);
  });
  check_launch("grouped_swiglu_backward");
}

}  // namespace trireme::kernels::cuda
