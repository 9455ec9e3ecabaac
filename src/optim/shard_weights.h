// SPDX-License-Identifier: Apache-2.0
// ShardWeights: the fp32 weights of a flat range of parameters, in one of three forms: the
// parameters themselves (fp32), a master copy, or split floats whose high parts are the parameters.
#pragma once

#include "device/device.h"
#include "device/tensor.h"
#include "optim/flat_floats.h"

namespace trireme::optim {

struct ShardWeights {
  device::Tensor param;        // [n], f32, bf16 or f16
  device::Tensor master = {};  // [n], f32, or u16: the low parts; absent exactly if param is f32

  bool is_split() const { return master && master.dtype == base::DType::u16; }
  FlatFloats floats() const;
  // Sets the weights to `values` ([n] f32) and rounds them into the parameters.
  void set(device::Stream&, device::ConstTensor values) const;
  // Called after the caller wrote floats(): rounds them into the parameters, unless the parameters
  // are part of them.
  void publish(device::Stream&) const;
  ShardWeights slice(int64_t first, int64_t count) const;
};

}  // namespace trireme::optim
