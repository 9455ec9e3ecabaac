// SPDX-License-Identifier: Apache-2.0
#include "optim/shard_weights.h"

#include "kernels/ops.h"

namespace trireme::optim {

FlatFloats ShardWeights::floats() const {
  if (!master) return {param};
  return is_split() ? FlatFloats{param, master} : FlatFloats{master};
}

void ShardWeights::set(device::Stream& stream, device::ConstTensor values) const {
  const FlatFloats own = floats();
  if (values.data != own.values.data) {
    kernels::ops::copy(stream, {.x = values, .d = own.values, .low = own.low});
  }
  publish(stream);
}

void ShardWeights::publish(device::Stream& stream) const {
  if (master && !is_split()) kernels::ops::copy(stream, {.x = master, .d = param});
}

ShardWeights ShardWeights::slice(int64_t first, int64_t count) const {
  return {param.slice_rows(first, count),
          master ? master.slice_rows(first, count) : device::Tensor{}};
}

}  // namespace trireme::optim
