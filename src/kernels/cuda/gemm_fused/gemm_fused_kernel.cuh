// SPDX-License-Identifier: Apache-2.0
// The kernel of gemm_fused.cuh: assigns roles to warps.
#pragma once

#include "kernels/cuda/gemm_fused/gemm_fused_finish.cuh"
#include "kernels/cuda/gemm_fused/gemm_fused_multiply.cuh"

namespace trireme::kernels::cuda::fused {

template <Fusion fusion>
__global__ void __cluster_dims__(blocks_of_cluster) __launch_bounds__(threads, 1)
    kernel(const __grid_constant__ FusedProduct p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // FusedProducts launches it nowhere else
  extern __shared__ uint8_t raw[];
  const Shared shared = {(shared_address(raw) + 1023) & ~1023U};
  const uint32_t rank = hopper::cluster_rank();
  const int group = static_cast<int>(threadIdx.x) / group_threads;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  init_barriers(shared);
  __syncthreads();
  hopper::cluster_sync();
  // The warpgroups start with 3 x 168 registers; those that multiply receive more.
  constexpr int multiplying = fusion == Fusion::gelu_grad ? 200 : 184;
  if (group > 0) {
    hopper::take_registers<multiplying>();
    multiply_tiles<fusion>(p, shared, Tiles(p, rank), group - 1);
  } else {
    hopper::give_registers<3 * 168 - 2 * multiplying>();
    if (warp > 0) {
      finish_tiles<fusion>(p, shared, Tiles(p, rank), warp - 1);
    } else if (threadIdx.x == 0) {
      hopper::fetch_map(&p.a);
      hopper::fetch_map(&p.b);
      copy_operands<fusion>(p, shared, rank);
    }
    __syncwarp();
  }
  // A block must not exit while the other one copies to it.
  hopper::cluster_sync();
#endif
}

}  // namespace trireme::kernels::cuda::fused
