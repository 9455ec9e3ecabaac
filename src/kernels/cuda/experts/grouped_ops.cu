// SPDX-License-Identifier: Apache-2.0
// The products of groups of rows: on the tensor cores if they support the operands, otherwise on
// CUDA cores. Products in 8 bits have their activations as separate kernels.
#include "kernels/cuda/experts/grouped_codes.h"
#include "kernels/cuda/experts/grouped_general.h"
#include "kernels/cuda/experts/grouped_products.h"
#include "kernels/cuda/experts/grouped_swiglu.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {
namespace {

const GroupedProducts& products_on(device::CudaStream& stream) {
  return Libraries::of(stream.cuda_device()).grouped_products();
}

// y = x weight^T, of any type.
void multiply_any(device::CudaStream& stream, const GroupedForwardArgs& args) {
  Libraries& libraries = Libraries::of(stream.cuda_device());
  const bool is_done = base::is_float8(args.x.dtype)
                           ? libraries.grouped_codes().forward(stream, args)
                           : libraries.grouped_products().forward(stream, args);
  if (!is_done) general_grouped_forward(stream, args);
}

// Raises `largest` by the rows of a result that the product itself did not look at.
void raise_by_rows(Stream& stream, const Tensor& largest, const Tensor& rows,
                   const ConstTensor& starts) {
  if (!largest) return;
  amax(stream, {.x = rows, .amax = largest, .end = starts.slice_rows(starts.elements() - 1, 1)});
}

}  // namespace

void grouped_forward(Stream& stream, const GroupedForwardArgs& args) {
  if (args.x.rows() > 0) multiply_any(device::cuda_stream(stream), args);
}

void grouped_swiglu_forward(Stream& stream, const GroupedSwigluForwardArgs& args) {
  if (args.x.rows() == 0) return;
  device::CudaStream& cuda = device::cuda_stream(stream);
  if (products_on(cuda).swiglu_forward(cuda, args)) {
    return raise_by_rows(stream, args.amax, args.act, args.starts);
  }
  multiply_any(cuda, {.x = args.x,
                      .weight = args.weight,
                      .starts = args.starts,
                      .y = args.gate_up,
                      .rows = args.rows,
                      .scales = args.scales});
  grouped_swiglu(stream, {.gate_up = args.gate_up,
                          .row_weight = args.row_weight,
                          .end = args.starts.slice_rows(args.weight.shape[0], 1),
                          .act = args.act,
                          .rows = args.rows,
                          .amax = args.amax});
}

void grouped_backward_input(Stream& stream, const GroupedBackwardInputArgs& args) {
  if (args.dy.rows() == 0) return;
  device::CudaStream& cuda = device::cuda_stream(stream);
  if (base::is_float8(args.dy.dtype)) {
    return multiply_any(cuda, {.x = args.dy,
                               .weight = args.weight,
                               .starts = args.starts,
                               .y = args.dx,
                               .rows = args.rows,
                               .scales = args.scales});
  }
  if (!products_on(cuda).backward_input(cuda, args)) general_grouped_backward_input(cuda, args);
}

void grouped_swiglu_backward(Stream& stream, const GroupedSwigluBackwardArgs& args) {
  if (args.dy.rows() == 0) return;
  device::CudaStream& cuda = device::cuda_stream(stream);
  if (base::is_float8(args.dy.dtype)) {
    multiply_any(cuda, {.x = args.dy,
                        .weight = args.weight,
                        .starts = args.starts,
                        .y = args.dact,
                        .rows = args.rows,
                        .scales = args.scales});
    return grouped_swiglu_gradient(cuda, args);
  }
  if (!products_on(cuda).swiglu_backward(cuda, args)) general_grouped_swiglu_backward(cuda, args);
  raise_by_rows(stream, args.amax, args.dgate_up, args.starts);
}

void grouped_backward_weight(Stream& stream, const GroupedBackwardWeightArgs& args) {
  device::CudaStream& cuda = device::cuda_stream(stream);
  Libraries& libraries = Libraries::of(cuda.cuda_device());
  const bool is_done = base::is_float8(args.dy.dtype)
                           ? libraries.grouped_codes().backward_weight(cuda, args)
                           : libraries.grouped_products().backward_weight(cuda, args);
  if (!is_done) general_grouped_backward_weight(cuda, args);
}

}  // namespace trireme::kernels::cuda
