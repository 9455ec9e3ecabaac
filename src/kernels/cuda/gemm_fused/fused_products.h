// SPDX-License-Identifier: Apache-2.0
// Products with an activation in them (gemm_fused.cuh) as host functions: which a device can do,
// and which are worth it.
#pragma once

#include "device/cuda/cuda_device.h"
#include "kernels/args.h"

namespace trireme::kernels::cuda {

struct FusedProduct;

class FusedProducts {
 public:
  explicit FusedProducts(device::CudaDevice& device);

  // Each queues all that its arguments say, with the bits of the activation's row for the product
  // that is stored or would be, or queues nothing and returns false: where the device is no Hopper,
  // and where types, alignment or sizes are not those of a large product in bf16. That hangs on the
  // arguments alone.

  // The gemm with gelu_input or gelu_slope.
  bool gelu(device::CudaStream& stream, const GemmArgs& gemm) const;
  // The gemm with factor and d_sum.
  bool factor(device::CudaStream&, const GemmArgs&) const;
  // The gemm with gelu_grad_of, d_sum and gelu_again.
  bool gelu_grad(device::CudaStream& stream, const GemmArgs& gemm) const;
  // The gemm and then the activation of its result, gemm.d.
  bool swiglu(device::CudaStream& stream, const GemmArgs& gemm,
              const SwigluForwardArgs& swiglu) const;
  // The gemm and then the activation's gradient of its result, gemm.d, which is not stored.
  bool swiglu_grad(device::CudaStream& stream, const GemmArgs& gemm,
                   const SwigluBackwardArgs& swiglu) const;

 private:
  bool takes(const GemmArgs& gemm) const;

  int clusters_ = 0;        // that the device runs at once; 0: it runs none
  void* encode_ = nullptr;  // the driver's function that describes matrices to the copy engine
};

}  // namespace trireme::kernels::cuda
