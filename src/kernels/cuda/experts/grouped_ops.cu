// SPDX-License-Identifier: Apache-2.0
// The products of groups of rows: on the tensor cores if they support the operands, otherwise on
// CUDA cores. And act = row_weight silu(gate) up alone, bound by memory: a thread has 16 bytes of
// each operand at a time.
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/experts/grouped_general.h"
#include "kernels/cuda/experts/grouped_products.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

template <typename T, int W>
__global__ void __launch_bounds__(256)
    weighted_swiglu_kernel(Extent extent, InRows gate_up, const float* row_weight,
                           const int32_t* end, OutRows act) {
  extent.rows = min(extent.rows, static_cast<int64_t>(*end));
  for_each_chunk<W>(extent, [&](int64_t row, int64_t column, int64_t /*count*/) {
    float gate[W], up[W];
    load_values(gate_up.row<T>(row) + column, gate);
    load_values(gate_up.row<T>(row) + extent.cols + column, up);
    const float weight = row_weight[row];
#pragma unroll
    for (int j = 0; j < W; ++j) gate[j] = silu(gate[j]).value * up[j] * weight;
    store_values(act.row<T>(row) + column, gate);
  });
}

const GroupedProducts& products_on(device::CudaStream& stream) {
  return Libraries::of(stream.cuda_device()).grouped_products();
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
    kernel<<<shape.grid, shape.block, 0, handle>>>(extent, in_rows(args.gate_up),
                                                   data<float>(args.row_weight),
                                                   data<int32_t>(args.end), out_rows(args.act));
  });
  check_launch("grouped_swiglu");
}

void grouped_forward(Stream& stream, const GroupedForwardArgs& args) {
  if (args.x.rows() == 0) return;
  device::CudaStream& cuda = device::cuda_stream(stream);
  if (!products_on(cuda).forward(cuda, args)) general_grouped_forward(cuda, args);
}

void grouped_swiglu_forward(Stream& stream, const GroupedSwigluForwardArgs& args) {
  if (args.x.rows() == 0) return;
  device::CudaStream& cuda = device::cuda_stream(stream);
  if (products_on(cuda).swiglu_forward(cuda, args)) return;
  general_grouped_forward(cuda, {args.x, args.weight, args.starts, args.gate_up, args.rows});
  const int64_t groups = args.weight.shape[0];
  grouped_swiglu(stream, {.gate_up = args.gate_up,
                          .row_weight = args.row_weight,
                          .end = args.starts.slice_rows(groups, 1),
                          .act = args.act,
                          .rows = args.rows});
}

void grouped_backward_input(Stream& stream, const GroupedBackwardInputArgs& args) {
  if (args.dy.rows() == 0) return;
  device::CudaStream& cuda = device::cuda_stream(stream);
  if (!products_on(cuda).backward_input(cuda, args)) general_grouped_backward_input(cuda, args);
}

void grouped_swiglu_backward(Stream& stream, const GroupedSwigluBackwardArgs& args) {
  if (args.dy.rows() == 0) return;
  device::CudaStream& cuda = device::cuda_stream(stream);
  if (!products_on(cuda).swiglu_backward(cuda, args)) general_grouped_swiglu_backward(cuda, args);
}

void grouped_backward_weight(Stream& stream, const GroupedBackwardWeightArgs& args) {
  device::CudaStream& cuda = device::cuda_stream(stream);
  if (!products_on(cuda).backward_weight(cuda, args)) general_grouped_backward_weight(cuda, args);
}

}  // namespace trireme::kernels::cuda
