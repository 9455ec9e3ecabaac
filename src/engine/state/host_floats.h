// SPDX-License-Identifier: Apache-2.0
// Conversion between flat device tensors (optim::FlatFloats) and floats on the host.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"
#include "optim/flat_floats.h"

namespace trireme::engine {

// Both wait for the device.
std::vector<float> download_floats(device::Stream&, const optim::FlatFloats& from);
void upload_floats(device::Stream&, const optim::FlatFloats& to, std::span<const float> values);

// Writes values as the tensors of `to` have them: the bytes of to.values, then those of to.low.
void store_floats(const optim::FlatFloats& to, std::span<const float> values, std::byte* at);

// Returns the floats in the bytes of an fp32, bf16 or fp16 tensor. If `low` is not empty, `values`
// and `low` are the high and low parts of split fp32 values.
std::vector<float> floats_of(base::DType, std::span<const std::byte> values,
                             std::span<const std::byte> low);

// Returns the floats `own` of every rank of the group, one after the other, sent through `buffer`.
// Waits for the device. REQUIRES: several ranks.
std::vector<float> gather_for_host(comm::Communicator&, device::Stream&,
                                   const device::Tensor& buffer, std::span<const float> own);

}  // namespace trireme::engine
