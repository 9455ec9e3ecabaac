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

  // The gemm with its epilogue.
  bool multiply(device::CudaStream& stream, const GemmArgs& gemm, const GeluForward& e) const;
  bool multiply(device::CudaStream&, const GemmArgs&, const GeluForwardSlope&) const;
  bool multiply(device::CudaStream&, const GemmArgs&, const GeluGradient&) const;
  bool multiply(device::CudaStream&, const GemmArgs&, const ScaleBy&) const;
  // The gemm and then the activation of its result, gemm.d.
  bool swiglu(device::CudaStream& stream, const GemmArgs& gemm,
              const SwigluForwardArgs& swiglu) const;
  // The gemm and then the activation's gradient of its result, gemm.d, which is not stored.
  bool swiglu_grad(device::CudaStream& stream, const GemmArgs& gemm,
                   const SwigluBackwardArgs& swiglu) const;

 private:
  bool takes(const GemmArgs& gemm) const;  // whatever the epilogue

  int clusters_ = 0;        // that the device runs at once; 0: it runs none
  void* encode_ = nullptr;  // the driver's function that describes matrices to the copy engine
};

}  // namespace trireme::kernels::cuda
