// SPDX-License-Identifier: Apache-2.0
// Flat f32 or bf16 tensors as floats on the host. Both wait for the device.
#pragma once

#include <span>
#include <vector>

#include "device/device.h"

namespace trireme::engine {

std::vector<float> download_floats(device::Stream&, const device::Tensor& from);
void upload_floats(device::Stream&, const device::Tensor& to, std::span<const float> values);

}  // namespace trireme::engine
