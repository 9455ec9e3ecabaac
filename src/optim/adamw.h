// SPDX-License-Identifier: Apache-2.0
// AdamW on a flat range of parameters. It owns no memory and knows no buckets, layers or ranks.
#pragma once

#include <span>

#include "device/device.h"
#include "device/tensor.h"
#include "optim/shard_weights.h"
#include "spec/parallel/shard.h"

namespace trireme::optim {

struct AdamwOptions {
  float beta1 = 0.9F, beta2 = 0.95F, eps = 1e-8F, weight_decay = 0.1F;
};

// A flat range of parameters that this rank updates. Elements [0, decayed) have weight decay. The
// squares of the changes of elements in `counted` are added to `changes`.
struct AdamwShard {
  ShardWeights weights;
  device::Tensor m, v;       // [n] f32: the two moments
  device::ConstTensor grad;  // [n]: of the summed loss
  int64_t decayed = 0;
  device::Tensor changes = {};                // one kernels::WideSum
  std::span<const spec::Range> counted = {};  // at most one of them meets each of the two parts
};

// Updates the range, with learning rate, scale and skip flag from `step_state` (one
// kernels::StepState).
void adamw(device::Stream&, const AdamwShard&, const AdamwOptions&, device::ConstTensor step_state);

}  // namespace trireme::optim
