// SPDX-License-Identifier: Apache-2.0
// Compiled instead of spin_gate.cu in a build without CUDA.
#include "tests/launch/spin/spin_gate.h"

namespace trireme::tests {

bool pass_gate_on_gpu(device::Stream& /*stream*/, SpinGate* /*gate*/) { return false; }

void lock_gate(const device::Stream& /*stream*/, SpinGate* /*gate*/) {}

}  // namespace trireme::tests
