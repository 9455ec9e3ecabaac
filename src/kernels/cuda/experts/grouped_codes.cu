// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/experts/grouped_codes.h"

#include "kernels/cuda/experts/grouped_codes_kernel.cuh"

namespace trireme::kernels::cuda {
namespace {

using base::DType;
using device::CudaStream;
using hopper::CodeFormat;

// Instructions after which a sum is added in fp32. Results in bf16 have larger errors than sums of
// four; gradients in fp32 do not.
constexpr int promoted_rows = 4, promoted_gradients = 1;

bool is_aligned_matrix(const ConstTensor& t) {
  const int64_t cols = t.shape[t.shape.ndim() - 1];
  return is_vectorisable(t) && cols * base::size_of(t.dtype) % 16 == 0 &&
         t.rows() <= INT32_MAX - 2 * fused::tile_m && cols <= INT32_MAX / 4;
}
bool are_codes(const ConstTensor& a, const ConstTensor& b) {
  return base::is_float8(a.dtype) && b.dtype == DType::f8e4m3 && is_aligned_matrix(a) &&
         is_aligned_matrix(b);
}

void set_scales(CodesProduct& p, const GroupedScales& scales) {
  p.scale_a = data<float>(scales.a);
  p.a_stride = scales.a.row_stride;
  p.scale_b = data<float>(scales.b);
  p.b_stride = scales.b.row_stride;
}

template <Fusion fusion, Sums sums, CodeFormat format, int promoted>
void launch_codes(CudaStream& stream, const CodesProduct& p, int clusters) {
  const auto kernel = fused::grouped_codes_kernel<fusion, sums, format, promoted>;
  constexpr uint32_t bytes = fused::codes_shared_bytes;
  device::cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(bytes)),
                     "grouped product in 8 bits: shared memory");
  const int blocks = fused::blocks_of_cluster * clusters;
  kernel<<<static_cast<unsigned>(blocks), fused::threads, bytes, stream.handle()>>>(p);
  check_launch("grouped product in 8 bits");
}

// With one scale a tensor, a may have either format; with blocks, recipes have e4m3 only.
template <Fusion fusion, int promoted>
bool launch_split(CudaStream& stream, const CodesProduct& p, DType format, int clusters) {
  if (format == DType::f8e5m2) {
    launch_codes<fusion, Sums::split, CodeFormat::e5m2, promoted>(stream, p, clusters);
  } else {
    launch_codes<fusion, Sums::split, CodeFormat::e4m3, promoted>(stream, p, clusters);
  }
  return true;
}

template <Fusion fusion, int promoted>
bool launch_gradient(CudaStream& stream, const CodesProduct& p, DType format, bool has_rows,
                     int clusters) {
  if (!has_rows) return launch_split<fusion, promoted>(stream, p, format, clusters);
  if (format != DType::f8e4m3) return false;
  launch_codes<fusion, Sums::rows, CodeFormat::e4m3, promoted>(stream, p, clusters);
  return true;
}
bool launch_gradient(CudaStream& stream, const CodesProduct& p, DType format, DType result,
                     bool has_rows, int clusters) {
  if (result == DType::bf16) {
    return launch_gradient<Fusion::weight_grad_bf16, promoted_rows>(stream, p, format, has_rows,
                                                                    clusters);
  }
  return launch_gradient<Fusion::weight_grad, promoted_gradients>(stream, p, format, has_rows,
                                                                  clusters);
}

// Returns whether d = a b^T, summed along the columns of both, is supported.
bool is_gradient(const ConstTensor& a, const ConstTensor& b, const GroupedScales& scales,
                 const Tensor& d) {
  const bool is_real = d.dtype == DType::bf16 || d.dtype == DType::f32;
  // Rows of scales are copied 16 bytes at a time.
  const bool has_aligned_scales =
      scales.shape_b != ScaleShape::row_128 ||
      (scales.b.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(scales.b.data) % 16 == 0);
  return are_codes(a, b) && is_real && is_aligned_matrix(d) && has_aligned_scales && a.cols() > 0;
}

CodesProduct gradient_of(const TensorMaps& maps, const ConstTensor& a, const ConstTensor& b,
                         const Tensor& d) {
  CodesProduct p = {};
  p.a = maps.matrix(a, fused::codes_box);
  p.b = maps.matrices(b, fused::codes_box);
  p.m = static_cast<int>(a.rows());
  p.n = static_cast<int>(b.rows());
  p.clusters_m = static_cast<int>(ceil_div(p.m, fused::tile_m * fused::blocks_of_cluster));
  p.tiles_n = static_cast<int>(ceil_div(p.n, fused::tile_n));
  p.tiles = p.clusters_m * p.tiles_n;
  p.rows_together = 8;  // about as many as columns: both operands are read
  p.end_row = static_cast<int>(a.cols());
  if (d.dtype == DType::bf16) {
    p.d = data<bf16>(d);
  } else {
    p.results = maps.matrices(d, fused::gradient_box);
  }
  return p;
}

}  // namespace

GroupedCodes::GroupedCodes(device::CudaDevice& device) : maps_(device) {
  if (maps_.is_supported()) clusters_ = device.multiprocessors() / fused::blocks_of_cluster;
}

bool GroupedCodes::forward(CudaStream& stream, const GroupedForwardArgs& args) const {
  const GroupedScales& scales = args.scales;
  const DType format = args.x.dtype;
  const bool has_blocks = scales.shape_b == ScaleShape::block_128;
  if (clusters_ == 0 || !are_codes(args.x, args.weight) || args.y.dtype != DType::bf16 ||
      !is_aligned_matrix(args.y) || (has_blocks && format != DType::f8e4m3)) {
    return false;
  }
  const int64_t n = args.weight.shape[1], k = args.weight.shape[2];
  CodesProduct p = {};
  p.a = maps_.matrix(args.x, fused::codes_box);
  p.b = maps_.matrices(args.weight, fused::codes_box);
  p.results = maps_.matrices(args.y, fused::result_box);
  p.m = static_cast<int>(args.x.rows());
  p.n = static_cast<int>(n);
  p.k = static_cast<int>(k);
  p.tiles_n = static_cast<int>(ceil_div(n, fused::tile_n));
  p.rows_together = fused::rows_together(n * k);
  p.starts = data<int32_t>(args.starts);
  p.groups = static_cast<int>(args.weight.shape[0]);
  p.end_row = p.m;
  set_scales(p, scales);
  if (has_blocks) {
    const base::Shape one = spec::scale_spec(scales.shape_b, n, k).shape;
    p.b_rows = static_cast<int>(one[0]);
    p.b_stride = one[1];
    launch_codes<Fusion::plain, Sums::blocks, CodeFormat::e4m3, promoted_rows>(stream, p,
                                                                               clusters_);
    return true;
  }
  if (scales.fast_sums && format == DType::f8e4m3) {
    launch_codes<Fusion::plain, Sums::fast, CodeFormat::e4m3, promoted_rows>(stream, p, clusters_);
    return true;
  }
  return launch_split<Fusion::plain, promoted_rows>(stream, p, format, clusters_);
}

bool GroupedCodes::backward_weight(CudaStream& stream,
                                   const GroupedBackwardWeightArgs& args) const {
  if (clusters_ == 0 || !is_gradient(args.dy, args.x, args.scales, args.dweight)) return false;
  CodesProduct p = gradient_of(maps_, args.dy, args.x, args.dweight);
  p.starts = data<int32_t>(args.starts);
  p.groups = static_cast<int>(args.dweight.shape[0]);
  p.d_stride = args.x.rows();
  p.d_group_stride = args.dweight.row_stride;
  p.adds = args.adds;
  set_scales(p, args.scales);
  return launch_gradient(stream, p, args.dy.dtype, args.dweight.dtype,
                         args.scales.shape_b == ScaleShape::row_128, clusters_);
}

bool GroupedCodes::multiply_rows(CudaStream& stream, const GemmArgs& gemm) const {
  const GroupedScales scales = {gemm.scale_a, gemm.scale_b, gemm.shape_a, gemm.shape_b, false};
  const bool has_rows =
      scales.shape_a == ScaleShape::row_128 && scales.shape_b == ScaleShape::row_128;
  if (clusters_ == 0 || !has_rows || gemm.alpha != 1 || (gemm.beta != 0 && gemm.beta != 1) ||
      gemm.a.cols() % spec::scale_block != 0 || !is_gradient(gemm.a, gemm.b, scales, gemm.d)) {
    return false;
  }
  CodesProduct p = gradient_of(maps_, gemm.a, gemm.b, gemm.d);
  p.groups = 1;
  p.d_stride = gemm.d.row_stride;
  p.adds = gemm.beta == 1;
  set_scales(p, scales);
  return launch_gradient(stream, p, gemm.a.dtype, gemm.d.dtype, true, clusters_);
}

}  // namespace trireme::kernels::cuda
