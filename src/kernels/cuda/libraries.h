// SPDX-License-Identifier: Apache-2.0
// The state of the CUDA table per device: library handles and the plans made with them. Like the
// ops that use it, it belongs to the one host thread that queues work on the device.
#pragma once

#include <cublasLt.h>

#include <memory>

#include "device/cuda/cuda_device.h"

namespace trireme::kernels::cuda {

class AttentionPlans;
class FlashAttention;
class FusedProducts;
class GemmPlans;
class GroupedCodes;
class GroupedProducts;

// Throws DeviceError unless `status` is success. `what` describes the attempted action.
void cublas_check(cublasStatus_t status, const char* what);

class Libraries final : public device::CudaDevice::KernelState {
 public:
  // Returns the object of this device, made at the first call.
  static Libraries& of(device::CudaDevice& device);

  explicit Libraries(device::CudaDevice& device);
  ~Libraries() override;
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  // Each is made at its first use.
  cublasLtHandle_t cublas();
  GemmPlans& gemm_plans();
  AttentionPlans& attention_plans();
  const FlashAttention& flash_attention();
  const FusedProducts& fused_products();
  const GroupedProducts& grouped_products();
  const GroupedCodes& grouped_codes();

 private:
  device::CudaDevice& device_;
  cublasLtHandle_t cublas_ = nullptr;
  std::unique_ptr<GemmPlans> gemm_plans_;
  std::unique_ptr<AttentionPlans> attention_plans_;
  std::unique_ptr<FlashAttention> flash_attention_;
  std::unique_ptr<FusedProducts> fused_products_;
  std::unique_ptr<GroupedProducts> grouped_products_;
  std::unique_ptr<GroupedCodes> grouped_codes_;
};

}  // namespace trireme::kernels::cuda
