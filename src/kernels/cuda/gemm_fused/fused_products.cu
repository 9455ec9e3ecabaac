// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm_fused/fused_products.h"

#include <algorithm>

#include "kernels/cuda/gemm_fused/gemm_fused_kernel.cuh"
#include "kernels/cuda/norm/norm_partials.cuh"

namespace trireme::kernels::cuda {
namespace {

using base::DType;
using device::CudaStream;

// Fewer would leave multiprocessors idle, or expose the epilogue of the last tiles.
constexpr int min_tiles = 264;  // of a cluster: 4 for each pair of multiprocessors of an H200
// With a shorter sum the activation takes longer than the product that should hide it.
constexpr int64_t min_k = 256;

bool is_aligned_bf16(const ConstTensor& t) { return t.dtype == DType::bf16 && is_vectorisable(t); }

bool is_aligned_bf16_bias(const ConstTensor& bias) {
  return !bias || (bias.dtype == DType::bf16 && bias.is_contiguous() &&
                   reinterpret_cast<uintptr_t>(bias.data) % 4 == 0);
}

// Returns whether d is the value itself and nothing else is written.
bool stores_value(const GemmArgs& gemm) {
  const auto* terms = std::get_if<AddTerms>(&gemm.epilogue);
  return terms != nullptr && !terms->bias && !terms->residual;
}

// Everything but the operands of the activation. `n` is that of the product.
FusedProduct product_of(const TensorMaps& maps, const GemmArgs& gemm) {
  const int64_t n = gemm.d.cols(), k = gemm.a.cols();
  FusedProduct p = {};
  p.a = maps.matrix(gemm.a, fused::a_box);
  p.b = maps.matrix(gemm.b, gemm.trans_b ? fused::b_box : fused::b_box_by_columns);
  p.m = static_cast<int>(gemm.d.rows());
  p.n = static_cast<int>(n);
  p.k = static_cast<int>(k);
  p.clusters_m =
      static_cast<int>(ceil_div(gemm.d.rows(), fused::tile_m * fused::blocks_of_cluster));
  p.tiles_n = static_cast<int>(ceil_div(n, fused::tile_n));
  p.tiles = p.clusters_m * p.tiles_n;
  p.rows_together = fused::rows_together(n * k * 2);
  return p;
}

// A product with GELU: value + bias, or its slope, goes to `stored`.
FusedProduct gelu_product(const TensorMaps& maps, const GemmArgs& gemm, const ConstTensor& bias,
                          const Tensor& stored) {
  FusedProduct p = product_of(maps, gemm);
  p.bias = data<bf16>(bias);
  p.value = data<bf16>(stored);
  p.value_stride = stored.row_stride;
  p.d = data<bf16>(gemm.d);
  p.d_stride = gemm.d.row_stride;
  return p;
}

// Sums of d's columns, `rows_of_tile` rows of partial sums for each tile.
base::TensorSpec partial_sums(const GemmArgs& gemm, int rows_of_tile) {
  const int64_t tiles = ceil_div(gemm.d.rows(), fused::tile_m);
  return {{rows_of_tile * tiles, gemm.d.cols()}, DType::f32};
}

template <Fusion fusion>
void launch(CudaStream& stream, const FusedProduct& p, int clusters) {
  const auto kernel = fused::kernel<fusion>;
  device::cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(fused::shared_bytes)),
                     "fused gemm: shared memory");
  const int blocks = fused::blocks_of_cluster * std::min(clusters, p.tiles);
  kernel<<<static_cast<unsigned>(blocks), fused::threads, fused::shared_bytes, stream.handle()>>>(
      p);
  check_launch("fused gemm");
}

}  // namespace

FusedProducts::FusedProducts(device::CudaDevice& device) : maps_(device) {
  if (maps_.is_supported()) clusters_ = device.multiprocessors() / fused::blocks_of_cluster;
}

bool FusedProducts::supports(const GemmArgs& gemm) const {
  const bool is_plain =
      !gemm.trans_a && gemm.alpha == 1 && gemm.beta == 0 && !gemm.scale_a && !gemm.scale_b;
  if (clusters_ == 0 || !is_plain) return false;
  const bool is_small_enough =
      gemm.d.rows() <= INT32_MAX && gemm.d.cols() <= INT32_MAX / 2 && gemm.a.cols() <= INT32_MAX;
  const int64_t tiles = ceil_div(gemm.d.rows(), fused::tile_m * fused::blocks_of_cluster) *
                        ceil_div(gemm.d.cols(), fused::tile_n);
  return is_small_enough && tiles >= min_tiles && tiles <= INT32_MAX && gemm.a.cols() >= min_k &&
         is_aligned_bf16(gemm.a) && is_aligned_bf16(gemm.b) && is_aligned_bf16(gemm.d);
}

bool FusedProducts::multiply(CudaStream& stream, const GemmArgs& gemm, const GeluForward& e) const {
  if (!supports(gemm) || !gemm.trans_b || !is_aligned_bf16(e.input) ||
      !is_aligned_bf16_bias(e.bias))
    return false;
  launch<Fusion::gelu>(stream, gelu_product(maps_, gemm, e.bias, e.input), clusters_);
  return true;
}

bool FusedProducts::multiply(CudaStream& stream, const GemmArgs& gemm,
                             const GeluForwardSlope& e) const {
  if (!supports(gemm) || !gemm.trans_b || !is_aligned_bf16(e.slope) ||
      !is_aligned_bf16_bias(e.bias))
    return false;
  launch<Fusion::gelu_slope>(stream, gelu_product(maps_, gemm, e.bias, e.slope), clusters_);
  return true;
}

bool FusedProducts::multiply(CudaStream& stream, const GemmArgs& gemm,
                             const GeluGradient& e) const {
  // Without e.gelu the library's epilogue is as fast.
  if (!e.gelu || !supports(gemm) || gemm.trans_b || !is_aligned_bf16(e.input) ||
      !is_aligned_bf16(e.gelu)) {
    return false;
  }
  const base::TensorSpec spec = partial_sums(gemm, 1);
  if (e.d_sum && base::bytes_of(spec) > stream.workspace().bytes()) return false;
  FusedProduct p = product_of(maps_, gemm);
  p.x = data<bf16>(e.input);
  p.x_stride = e.input.row_stride;
  p.d = data<bf16>(gemm.d);
  p.d_stride = gemm.d.row_stride;
  p.recomputed = data<bf16>(e.gelu);
  p.recomputed_stride = e.gelu.row_stride;
  const Tensor sums = e.d_sum ? device::view_of(stream.workspace().data, spec) : Tensor{};
  p.sums = data<float>(sums);
  launch<Fusion::gelu_grad>(stream, p, clusters_);
  if (e.d_sum) add_partials(stream.handle(), sums, {e.d_sum});
  return true;
}

bool FusedProducts::multiply(CudaStream& stream, const GemmArgs& gemm, const ScaleBy& e) const {
  if (!supports(gemm) || gemm.trans_b || !is_aligned_bf16(e.factor)) return false;
  const base::TensorSpec spec = partial_sums(gemm, fused::finishing_warps);
  if (e.d_sum && base::bytes_of(spec) > stream.workspace().bytes()) return false;
  FusedProduct p = product_of(maps_, gemm);
  p.x = data<bf16>(e.factor);
  p.x_stride = e.factor.row_stride;
  p.d = data<bf16>(gemm.d);
  p.d_stride = gemm.d.row_stride;
  const Tensor sums = e.d_sum ? device::view_of(stream.workspace().data, spec) : Tensor{};
  p.sums = data<float>(sums);
  launch<Fusion::factor>(stream, p, clusters_);
  if (e.d_sum) add_partials(stream.handle(), sums, {e.d_sum});
  return true;
}

bool FusedProducts::swiglu(CudaStream& stream, const GemmArgs& gemm,
                           const SwigluForwardArgs& swiglu) const {
  if (!supports(gemm) || !stores_value(gemm) || !gemm.trans_b || !is_aligned_bf16(swiglu.y) ||
      swiglu.amax) {
    return false;
  }
  FusedProduct p = product_of(maps_, gemm);
  p.value = data<bf16>(gemm.d);
  p.value_stride = gemm.d.row_stride;
  p.d = data<bf16>(swiglu.y);
  p.d_stride = swiglu.y.row_stride;
  launch<Fusion::swiglu>(stream, p, clusters_);
  return true;
}

bool FusedProducts::swiglu_grad(CudaStream& stream, const GemmArgs& gemm,
                                const SwigluBackwardArgs& swiglu) const {
  if (!supports(gemm) || !stores_value(gemm) || gemm.trans_b || !is_aligned_bf16(swiglu.gate_up) ||
      !is_aligned_bf16(swiglu.dgate_up) || (swiglu.y && !is_aligned_bf16(swiglu.y)) ||
      swiglu.amax) {
    return false;
  }
  FusedProduct p = product_of(maps_, gemm);
  p.x = data<bf16>(swiglu.gate_up);
  p.x_stride = swiglu.gate_up.row_stride;
  p.d = data<bf16>(swiglu.dgate_up);
  p.d_stride = swiglu.dgate_up.row_stride;
  p.recomputed = data<bf16>(swiglu.y);
  p.recomputed_stride = swiglu.y.row_stride;
  launch<Fusion::swiglu_grad>(stream, p, clusters_);
  return true;
}

}  // namespace trireme::kernels::cuda
