// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/libraries.h"

#include <fmt/core.h>

#include "base/error.h"
#include "kernels/cuda/attention/attention_flash.h"
#include "kernels/cuda/cudnn/attention_plans.h"
#include "kernels/cuda/experts/grouped_codes.h"
#include "kernels/cuda/experts/grouped_products.h"
#include "kernels/cuda/gemm/gemm_plans.h"
#include "kernels/cuda/gemm_fused/fused_products.h"

namespace trireme::kernels::cuda {

void cublas_check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw base::DeviceError(fmt::format("cuBLASLt: {}: {} ({})", what,
                                      cublasLtGetStatusString(status), static_cast<int>(status)));
}

Libraries& Libraries::of(device::CudaDevice& device) {
  std::unique_ptr<device::CudaDevice::KernelState>& state = device.kernel_state();
  if (!state) state = std::make_unique<Libraries>(device);
  return static_cast<Libraries&>(*state);
}

Libraries::Libraries(device::CudaDevice& device) : device_(device) {}

Libraries::~Libraries() {
  if (cublas_ != nullptr) static_cast<void>(cublasLtDestroy(cublas_));
}

cublasLtHandle_t Libraries::cublas() {
  if (cublas_ == nullptr) cublas_check(cublasLtCreate(&cublas_), "creating a handle");
  return cublas_;
}

GemmPlans& Libraries::gemm_plans() {
  if (!gemm_plans_) gemm_plans_ = std::make_unique<GemmPlans>(device_, cublas());
  return *gemm_plans_;
}

AttentionPlans& Libraries::attention_plans() {
  if (!attention_plans_) attention_plans_ = std::make_unique<AttentionPlans>(device_);
  return *attention_plans_;
}

const FlashAttention& Libraries::flash_attention() {
  if (!flash_attention_) flash_attention_ = std::make_unique<FlashAttention>(device_);
  return *flash_attention_;
}

const FusedProducts& Libraries::fused_products() {
  if (!fused_products_) fused_products_ = std::make_unique<FusedProducts>(device_);
  return *fused_products_;
}

const GroupedCodes& Libraries::grouped_codes() {
  if (!grouped_codes_) grouped_codes_ = std::make_unique<GroupedCodes>(device_);
  return *grouped_codes_;
}

const GroupedProducts& Libraries::grouped_products() {
  if (!grouped_products_) grouped_products_ = std::make_unique<GroupedProducts>(device_);
  return *grouped_products_;
}

}  // namespace trireme::kernels::cuda
