// SPDX-License-Identifier: Apache-2.0
// Flat numbers of a device as floats on the host.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "device/device.h"
#include "optim/flat_floats.h"

namespace trireme::engine {

// Both wait for the device.
std::vector<float> download_floats(device::Stream&, const optim::FlatFloats& from);
void upload_floats(device::Stream&, const optim::FlatFloats& to, std::span<const float> values);

// The floats in the bytes of an f32 or bf16 tensor, or of halves, whose lower ones are `low`.
std::vector<float> floats_of(base::DType, std::span<const std::byte> values,
                             std::span<const std::byte> low);

}  // namespace trireme::engine
