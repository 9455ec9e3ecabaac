// SPDX-License-Identifier: Apache-2.0
// Products with fused activations (gemm_fused.cuh) as host functions, which also decide whether a
// device supports a product and whether fusing it is faster.
#pragma once

#include "device/cuda/cuda_device.h"
#include "kernels/args.h"
#include "kernels/cuda/gemm_fused/tensor_maps.h"

namespace trireme::kernels::cuda {

struct FusedProduct;

class FusedProducts {
 public:
  explicit FusedProducts(device::CudaDevice& device);

  // Each queues the complete operation, with the bits that the op of the activation computes from
  // the product as it is, or would be, stored. Or it queues nothing and returns false: if the
  // device is no Hopper, or types, alignment or sizes are not those of a large bf16 product. That
  // depends on the arguments only.

  // The gemm with its epilogue.
  bool multiply(device::CudaStream& stream, const GemmArgs& gemm, const GeluForward& e) const;
  bool multiply(device::CudaStream&, const GemmArgs&, const GeluForwardSlope&) const;
  bool multiply(device::CudaStream&, const GemmArgs&, const GeluGradient&) const;
  bool multiply(device::CudaStream&, const GemmArgs&, const ScaleBy&) const;
  // The gemm and the activation of its result, gemm.d.
  bool swiglu(device::CudaStream& stream, const GemmArgs& gemm,
              const SwigluForwardArgs& swiglu) const;
  // The gemm and the gradient of the activation of its result, gemm.d, which is not stored.
  bool swiglu_grad(device::CudaStream& stream, const GemmArgs& gemm,
                   const SwigluBackwardArgs& swiglu) const;

 private:
  bool supports(const GemmArgs& gemm) const;  // independent of the epilogue

  TensorMaps maps_;
  int clusters_ = 0;  // that run concurrently; 0: not supported
};

}  // namespace trireme::kernels::cuda
