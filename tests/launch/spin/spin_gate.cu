// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_device.h"
#include "tests/launch/spin/spin_gate.h"

namespace trireme::tests {
namespace {

__global__ void spin_gate_kernel(volatile SpinGate* gate) {
  const int64_t pass = gate->passes + 1;
  gate->passes = pass;
  if (gate->due == 0 || pass < gate->due || gate->is_open != 0) return;
  gate->spins = pass;
  __threadfence_system();
  while (gate->is_open == 0) {
  }
}

}  // namespace

bool pass_gate_on_gpu(device::Stream& stream, SpinGate* gate) {
  auto* queue = dynamic_cast<device::CudaStream*>(&stream);
  if (queue == nullptr) return false;
  spin_gate_kernel<<<1, 1, 0, queue->handle()>>>(gate);
  device::cuda_check(cudaGetLastError(), "passing a gate");
  return true;
}

void lock_gate(const device::Stream& stream, SpinGate* gate) {
  if (dynamic_cast<const device::CudaStream*>(&stream) == nullptr) return;
  device::cuda_check(cudaHostRegister(gate, sizeof(SpinGate), cudaHostRegisterPortable),
                     "page-locking a gate");
}

}  // namespace trireme::tests
