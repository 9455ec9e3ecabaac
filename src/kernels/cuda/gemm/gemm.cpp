// SPDX-License-Identifier: Apache-2.0
// value = alpha op(a) op(b) + beta d;  d = epilogue(value), as kernels/epilogue.h states.
//
// cuBLASLt computes the product with bias and addend if it supports the operands (gemm_plans.h),
// otherwise a kernel on CUDA cores does (gemm_general.cu). GELU, its gradient and the
// multiplication by a factor are fused into the product for large bf16 products on Hopper
// (fused_products.h). Otherwise they are kernels after the product, with one exception: the
// gradient of GELU in large products is cuBLASLt's epilogue. A bias gradient is cuBLASLt's epilogue
// in large weight gradients where that is as good, otherwise a kernel before the product. Sums of d
// and a recomputed GELU are kernels around the product. Products of 8-bit operands are cuBLASLt's
// with scales, bias and addend, or if both have scales of rows those of experts/grouped_codes.cuh;
// all else is done by kernels around them.
#include "base/check.h"
#include "base/shape.h"
#include "kernels/cuda/experts/grouped_codes.h"
#include "kernels/cuda/gemm/gemm_kernels.h"
#include "kernels/cuda/gemm/gemm_plans.h"
#include "kernels/cuda/gemm_fused/fused_products.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {
namespace {

using base::DType;
using device::CudaStream;

// The part of a gemm that cuBLASLt computes: d [m, n] = alpha op(a) op(b) + bias + beta c.
struct Product {
  Tensor d;
  ConstTensor bias = {};
  ConstTensor c = {};  // may be d
  float beta = 0;
  ConstTensor gelu_grad_of = {};  // optional: d is multiplied by gelu' of it
  Tensor row_sums = {};           // optional [m] f32: the row sums of op(a)
  int64_t workspace_begin = 0;    // bytes of the workspace that are in use
};

// Returns one of the alignments that algorithms distinguish: more would make more plans of the same
// product.
int alignment_of(const std::byte* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  for (const int bytes : {256, 16, 8, 4}) {
    if (address % static_cast<uintptr_t>(bytes) == 0) return bytes;
  }
  return 2;
}

bool is_same(const ConstTensor& x, const ConstTensor& y) {
  return x.data == y.data && x.row_stride == y.row_stride && x.dtype == y.dtype;
}

bool is_coded(const GemmArgs& args) { return base::is_float8(args.a.dtype); }

// Returns whether the library supports these 8-bit operands: it takes scales without a stride, and
// matrices of which every row is aligned.
bool is_known_operand(const ConstTensor& codes, const ConstTensor& scale, ScaleShape shape) {
  const bool has_aligned_rows = alignment_of(codes.data) >= 16 && codes.row_stride % 16 == 0 &&
                                codes.cols() % 16 == 0 && codes.rows() % 16 == 0;
  if (shape == ScaleShape::tensor) return has_aligned_rows;
  return has_aligned_rows && codes.cols() % spec::scale_block == 0 &&
         (shape == ScaleShape::row_128 || codes.rows() % spec::scale_block == 0) &&
         scale.is_contiguous() && alignment_of(scale.data) >= 16;
}

// Returns whether the library supports products of these operands and types.
bool is_known(const GemmArgs& args, const Product& p) {
  const bool inputs = is_coded(args)
                          ? is_known_operand(args.a, args.scale_a, args.shape_a) &&
                                is_known_operand(args.b, args.scale_b, args.shape_b) &&
                                (!p.bias || p.d.dtype == DType::bf16)
                          : args.a.dtype == args.b.dtype &&
                                (p.d.dtype == DType::f32 ||
                                 (args.a.dtype != DType::f32 && p.d.dtype == args.a.dtype));
  return inputs && (!p.bias || (p.bias.dtype == p.d.dtype && p.bias.is_contiguous())) &&
         (!p.c || p.c.dtype == p.d.dtype);
}

// Queues the product, or queues nothing and returns false if the library does not support it.
bool multiply(CudaStream& stream, const GemmArgs& args, const Product& p) {
  if (!is_known(args, p)) return false;
  // The library cannot add a matrix in place that has the memory of d and other strides.
  const bool is_in_place = p.c && p.c.data == p.d.data;
  if (is_in_place && !is_same(p.c, p.d)) return false;
  Matmul what = {.m = p.d.rows(),
                 .n = p.d.cols(),
                 .k = args.trans_a ? args.a.rows() : args.a.cols(),
                 .trans_a = args.trans_a,
                 .trans_b = args.trans_b,
                 .in = args.a.dtype,
                 .out = p.d.dtype,
                 .a_stride = args.a.row_stride,
                 .b_stride = args.b.row_stride,
                 .d_stride = p.d.row_stride,
                 .a_align = alignment_of(args.a.data),
                 .b_align = alignment_of(args.b.data),
                 .d_align = alignment_of(p.d.data),
                 .workspace_bytes = stream.workspace().bytes() - p.workspace_begin};
  MatmulOperands operands = {.a = args.a.data,
                             .b = args.b.data,
                             .d = p.d.data,
                             .alpha = args.alpha,
                             .beta = p.beta,
                             .workspace = stream.workspace().data + p.workspace_begin};
  if (is_coded(args)) {
    what.coded = {args.b.dtype, args.shape_a, args.shape_b, args.fast_sums};
    operands.scale_a = args.scale_a.data;
    operands.scale_b = args.scale_b.data;
  }
  if (p.c) {
    what.addend = is_in_place ? Addend::in_place : Addend::separate;
    if (!is_in_place) {
      what.c_stride = p.c.row_stride;
      what.c_align = alignment_of(p.c.data);
      operands.c = p.c.data;
    }
  }
  if (p.bias) {
    what.epilogue = MatmulEpilogue::bias;
    what.bias_align = alignment_of(p.bias.data);
    operands.bias = p.bias.data;
  }
  if (p.gelu_grad_of) {
    what.epilogue = MatmulEpilogue::gelu_grad;
    what.aux_stride = p.gelu_grad_of.row_stride;
    what.aux_align = alignment_of(p.gelu_grad_of.data);
    operands.aux = p.gelu_grad_of.data;
  }
  if (p.row_sums) {
    what.epilogue = MatmulEpilogue::a_sum;
    operands.sums = p.row_sums.data;
  }
  return Libraries::of(stream.cuda_device()).gemm_plans().multiply(stream, what, operands);
}

double flops_of(const GemmArgs& args) {
  const int64_t k = args.trans_a ? args.a.rows() : args.a.cols();
  return 2.0 * static_cast<double>(args.d.rows()) * static_cast<double>(args.d.cols()) *
         static_cast<double>(k);
}

// Returns whether a plan is not worth its cost: a few blocks of the general kernel suffice.
bool is_tiny(const GemmArgs& args) {
  const int64_t k = args.trans_a ? args.a.rows() : args.a.cols();
  return flops_of(args) < 1e6 && k <= 1024;
}

// Returns whether the library's epilogue is tried for the gradient of GELU. Depends on the shape,
// so that bits do not depend on a measurement as long as the epilogue is exact enough.
bool suits_epilogue(const GemmArgs& args, const GeluGradient& e) {
  return !is_coded(args) && flops_of(args) >= min_measured_flops && e.input.data != args.d.data &&
         args.d.dtype == DType::bf16 && e.input.dtype == DType::bf16 &&
         e.input.row_stride % 8 == 0 && alignment_of(e.input.data) >= 16;
}

using MultiplyBy = void (*)(CudaStream&, const FactorArgs&);

// Computes value, then d from value and x by a kernel: multiply_by or multiply_by_gelu_grad.
bool multiply_then(CudaStream& stream, const GemmArgs& args, const ConstTensor& x,
                   MultiplyBy multiply_by_x) {
  if ((x.dtype == DType::f16) != (args.d.dtype == DType::f16)) return false;
  const bool is_in_place = x.data == args.d.data;
  // The value goes to d, or as fp32 to the workspace if it fits beside the library's workspace:
  // then d may be x, and is rounded once.
  Product p = {.d = args.d};
  if (is_in_place || args.d.dtype != DType::f32) {
    const base::TensorSpec spec = {{args.d.rows(), args.d.cols()}, DType::f32};
    const int64_t bytes = base::bytes_of(spec);
    if (bytes <= stream.workspace().bytes() / 2) {
      p.d = device::view_of(stream.workspace().data, spec);
      p.workspace_begin = bytes;
    } else if (is_in_place) {
      return false;
    }
  }
  if (!multiply(stream, args, p)) return false;
  multiply_by_x(stream, {.value = p.d, .x = x, .d = args.d});
  return true;
}

// The product and BiasGradient::sum. The library overwrites sums, so they go through the workspace.
bool multiply_with_row_sums(CudaStream& stream, const GemmArgs& args, const BiasGradient& e) {
  if (args.alpha != 1) return false;
  // Depends on the shape, as above. A kernel for the sums takes about 175 / n of the product's time
  // on an H200, which reads 4 TB/s and multiplies at 700 TFLOP/s: with many columns there is
  // nothing to gain.
  constexpr int64_t max_columns = 2048;
  if (flops_of(args) < min_measured_flops || args.d.cols() > max_columns ||
      args.a.dtype != DType::bf16 || args.d.dtype != DType::f32) {
    return false;
  }
  const base::TensorSpec spec = {{args.d.rows()}, DType::f32};
  const int64_t bytes = base::bytes_of(spec);
  if (bytes > stream.workspace().bytes() / 2) return false;
  Product p = {.d = args.d,
               .row_sums = device::view_of(stream.workspace().data, spec),
               .workspace_begin = bytes};
  if (args.beta != 0) {
    p.c = args.d;
    p.beta = args.beta;
  }
  if (!multiply(stream, args, p)) return false;
  accumulate(stream, {.x = p.row_sums, .d = e.sum});
  return true;
}

bool is_empty(const Tensor& d) { return d.rows() == 0 || d.cols() == 0; }

const FusedProducts& fused_products(CudaStream& stream) {
  return Libraries::of(stream.cuda_device()).fused_products();
}

// Queues value = alpha op(a) op(b) + beta d of a large product with scales of rows that the library
// does not support. Where it does, it is faster: 840 to 940 TFLOP/s on an H200, against 520 to 760.
bool multiply_rows(CudaStream& stream, const GemmArgs& args) {
  return args.shape_a == ScaleShape::row_128 && args.shape_b == ScaleShape::row_128 &&
         flops_of(args) >= min_measured_flops &&
         Libraries::of(stream.cuda_device()).grouped_codes().multiply_rows(stream, args);
}

// ---- run(): the complete operation, one overload for each epilogue

void run(CudaStream& stream, const GemmArgs& args, const AddTerms& e) {
  if (is_empty(args.d)) return;
  Product p = {.d = args.d, .bias = e.bias};
  if (e.residual) {
    p.c = e.residual;
    p.beta = 1;
  } else if (args.beta != 0) {
    p.c = args.d;
    p.beta = args.beta;
  }
  if (!is_tiny(args) && multiply(stream, args, p)) return;
  const bool is_plain = !e.bias && !e.residual;
  if (!is_plain || !multiply_rows(stream, args)) general_gemm(stream, args);
}

void run(CudaStream& stream, const GemmArgs& args, const GeluForward& e) {
  if (is_empty(args.d) || fused_products(stream).multiply(stream, args, e)) return;
  const Product p = {.d = e.input, .bias = e.bias};
  if (is_tiny(args) || !multiply(stream, args, p)) general_gemm(stream, args);
  gelu_forward(stream, {.x = e.input, .y = args.d});
}

void run(CudaStream& stream, const GemmArgs& args, const GeluForwardSlope& e) {
  if (is_empty(args.d) || fused_products(stream).multiply(stream, args, e)) return;
  const Product p = {.d = e.slope, .bias = e.bias};
  if (is_tiny(args) || !multiply(stream, args, p)) general_gemm(stream, args);
  gelu_with_slope(stream, e.slope, args.d);
}

void run(CudaStream& stream, const GemmArgs& args, const GeluGradient& e) {
  if (is_empty(args.d) || fused_products(stream).multiply(stream, args, e)) return;
  // Before the product, since d may be the input.
  if (e.gelu) gelu_forward(stream, {.x = e.input, .y = e.gelu});
  const bool is_done =
      !is_tiny(args) && ((suits_epilogue(args, e) &&
                          multiply(stream, args, {.d = args.d, .gelu_grad_of = e.input})) ||
                         multiply_then(stream, args, e.input, multiply_by_gelu_grad));
  if (!is_done) general_gemm(stream, args);
  if (e.d_sum) add_row_sums(stream, args.d, true, e.d_sum);
}

void run(CudaStream& stream, const GemmArgs& args, const ScaleBy& e) {
  if (is_empty(args.d) || fused_products(stream).multiply(stream, args, e)) return;
  if (is_tiny(args) || !multiply_then(stream, args, e.factor, multiply_by)) {
    general_gemm(stream, args);
  }
  if (e.d_sum) add_row_sums(stream, args.d, true, e.d_sum);
}

void run(CudaStream& stream, const GemmArgs& args, const BiasGradient& e) {
  if (multiply_with_row_sums(stream, args, e)) return;
  // The workspace holds partial sums here and the library's partial products below; the stream
  // orders the two uses.
  if (is_coded(args)) {
    add_row_sums_of_codes(stream, args, e.sum);
  } else {
    add_row_sums(stream, args.a, args.trans_a, e.sum);
  }
  run(stream, args, AddTerms{});
}

}  // namespace

void gemm(Stream& stream, const GemmArgs& args) {
  CudaStream& s = device::cuda_stream(stream);
  std::visit([&](const auto& e) { run(s, args, e); }, args.epilogue);
}

bool gemm_swiglu_forward(Stream& stream, const GemmArgs& gemm, const SwigluForwardArgs& swiglu) {
  CudaStream& s = device::cuda_stream(stream);
  return Libraries::of(s.cuda_device()).fused_products().swiglu(s, gemm, swiglu);
}

bool gemm_swiglu_backward(Stream& stream, const GemmArgs& gemm, const SwigluBackwardArgs& swiglu) {
  CudaStream& s = device::cuda_stream(stream);
  return Libraries::of(s.cuda_device()).fused_products().swiglu_grad(s, gemm, swiglu);
}

}  // namespace trireme::kernels::cuda
