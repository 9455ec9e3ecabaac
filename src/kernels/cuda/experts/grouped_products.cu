// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/experts/grouped_products.h"

#include <algorithm>

#include "kernels/cuda/experts/grouped_kernel.cuh"
#include "kernels/cuda/experts/row_sums.h"

namespace trireme::kernels::cuda {
namespace {

using base::DType;
using device::CudaStream;

bool is_aligned(const ConstTensor& t) {
  return is_vectorisable(t) && t.shape[t.shape.ndim() - 1] * base::size_of(t.dtype) % 16 == 0 &&
         t.rows() <= INT32_MAX - 2 * fused::tile_m && t.shape[t.shape.ndim() - 1] <= INT32_MAX / 4;
}
bool is_aligned_bf16(const ConstTensor& t) { return t.dtype == DType::bf16 && is_aligned(t); }

// The starts and rows of a product, and its operands: rows of a by the matrices of b.
GroupedProduct by_rows(const TensorMaps& maps, const ConstTensor& a, const ConstTensor& b,
                       bool is_backward, const ConstTensor& starts) {
  const int64_t n = b.shape[is_backward ? 2 : 1], k = b.shape[is_backward ? 1 : 2];
  GroupedProduct p = {};
  p.a = maps.matrix(a, fused::a_box);
  p.b = maps.matrices(b, is_backward ? fused::b_box_by_columns : fused::b_box);
  p.m = static_cast<int>(a.rows());
  p.n = static_cast<int>(n);
  p.k = static_cast<int>(k);
  p.tiles_n = static_cast<int>(ceil_div(n, fused::tile_n));
  p.rows_together = fused::rows_together(n * k * 2);
  p.starts = data<int32_t>(starts);
  p.groups = static_cast<int>(b.shape[0]);
  p.end_row = p.m;
  return p;
}

template <Fusion fusion>
void launch(CudaStream& stream, const GroupedProduct& p, int clusters) {
  const auto kernel = fused::grouped_kernel<fusion>;
  constexpr uint32_t bytes = fused::grouped_shared_bytes;
  device::cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(bytes)),
                     "grouped product: shared memory");
  const int blocks = fused::blocks_of_cluster * clusters;
  kernel<<<static_cast<unsigned>(blocks), fused::threads, bytes, stream.handle()>>>(p);
  check_launch("grouped product");
}

}  // namespace

GroupedProducts::GroupedProducts(device::CudaDevice& device) : maps_(device) {
  if (maps_.is_supported()) clusters_ = device.multiprocessors() / fused::blocks_of_cluster;
}

bool GroupedProducts::forward(CudaStream& stream, const GroupedForwardArgs& args) const {
  if (clusters_ == 0 || !is_aligned_bf16(args.x) || !is_aligned_bf16(args.weight) ||
      !is_aligned_bf16(args.y)) {
    return false;
  }
  GroupedProduct p = by_rows(maps_, args.x, args.weight, false, args.starts);
  p.results = maps_.matrices(args.y, fused::result_box);
  launch<Fusion::plain>(stream, p, clusters_);
  return true;
}

bool GroupedProducts::swiglu_forward(CudaStream& stream,
                                     const GroupedSwigluForwardArgs& args) const {
  if (clusters_ == 0 || !is_aligned_bf16(args.x) || !is_aligned_bf16(args.weight) ||
      !is_aligned_bf16(args.gate_up) || !is_aligned_bf16(args.act)) {
    return false;
  }
  GroupedProduct p = by_rows(maps_, args.x, args.weight, false, args.starts);
  p.value = data<bf16>(args.gate_up);
  p.value_stride = args.gate_up.row_stride;
  p.d = data<bf16>(args.act);
  p.d_stride = args.act.row_stride;
  p.row_weight = data<float>(args.row_weight);
  launch<Fusion::weighted_swiglu>(stream, p, clusters_);
  return true;
}

bool GroupedProducts::backward_input(CudaStream& stream,
                                     const GroupedBackwardInputArgs& args) const {
  if (clusters_ == 0 || !is_aligned_bf16(args.dy) || !is_aligned_bf16(args.weight) ||
      !is_aligned_bf16(args.dx)) {
    return false;
  }
  GroupedProduct p = by_rows(maps_, args.dy, args.weight, true, args.starts);
  p.results = maps_.matrices(args.dx, fused::result_box);
  launch<Fusion::plain_grad>(stream, p, clusters_);
  return true;
}

bool GroupedProducts::swiglu_backward(CudaStream& stream,
                                      const GroupedSwigluBackwardArgs& args) const {
  if (clusters_ == 0 || !is_aligned_bf16(args.dy) || !is_aligned_bf16(args.weight) ||
      !is_aligned_bf16(args.gate_up) || !is_aligned_bf16(args.dgate_up) ||
      (args.act && !is_aligned_bf16(args.act))) {
    return false;
  }
  GroupedProduct p = by_rows(maps_, args.dy, args.weight, true, args.starts);
  p.x = data<bf16>(args.gate_up);
  p.x_stride = args.gate_up.row_stride;
  p.d = data<bf16>(args.dgate_up);
  p.d_stride = args.dgate_up.row_stride;
  p.recomputed = data<bf16>(args.act);
  p.recomputed_stride = args.act.row_stride;
  p.row_weight = data<float>(args.row_weight);
  // As many rows at once as the workspace has room for partial sums of.
  constexpr int64_t grain = fused::tile_m * fused::blocks_of_cluster;
  const RowSums sums = row_sums(stream, args.dy.rows(), p.tiles_n, grain);
  p.row_sums = sums.partials;
  p.row_sums_stride = sums.rows;
  for (int64_t first = 0; first < p.m; first += sums.rows) {
    p.first_row = static_cast<int>(first);
    p.end_row = static_cast<int>(std::min<int64_t>(first + sums.rows, p.m));
    launch<Fusion::weighted_swiglu_grad>(stream, p, clusters_);
    sum_rows(stream, sums, first, args.starts, args.dweight);
  }
  return true;
}

bool GroupedProducts::backward_weight(CudaStream& stream,
                                      const GroupedBackwardWeightArgs& args) const {
  const bool is_bf16 = args.dweight.dtype == DType::bf16;
  if (clusters_ == 0 || !is_aligned_bf16(args.dy) || !is_aligned_bf16(args.x) ||
      !(is_bf16 || args.dweight.dtype == DType::f32) || !is_aligned(args.dweight) ||
      args.dy.rows() == 0) {
    return false;
  }
  const int64_t n = args.dy.cols(), width = args.x.cols();
  GroupedProduct p = {};
  p.a = maps_.matrix(args.dy, fused::b_box_by_columns);
  p.b = maps_.matrices(args.x, fused::b_box_by_columns);
  p.m = static_cast<int>(n);
  p.n = static_cast<int>(width);
  p.clusters_m = static_cast<int>(ceil_div(n, fused::tile_m * fused::blocks_of_cluster));
  p.tiles_n = static_cast<int>(ceil_div(width, fused::tile_n));
  p.tiles = p.clusters_m * p.tiles_n;
  p.rows_together = 8;  // about as many as columns: both operands are read
  p.starts = data<int32_t>(args.starts);
  p.groups = static_cast<int>(args.dweight.shape[0]);
  p.end_row = static_cast<int>(args.dy.rows());
  p.d_stride = width;
  p.d_group_stride = args.dweight.row_stride;
  p.adds = args.adds;
  if (is_bf16) {
    p.d = data<bf16>(args.dweight);
    launch<Fusion::weight_grad_bf16>(stream, p, clusters_);
  } else {
    p.results = maps_.matrices(args.dweight, fused::gradient_box);
    launch<Fusion::weight_grad>(stream, p, clusters_);
  }
  return true;
}

}  // namespace trireme::kernels::cuda
