// SPDX-License-Identifier: Apache-2.0
// AdamW over flat shards: owns master weights and moments, knows nothing of buckets, layers or
// ranks.
#pragma once

#include <span>
#include <vector>

#include "device/device.h"
#include "device/memory.h"

namespace trireme::optim {

using device::ConstTensor;
using device::Tensor;

// A flat stretch of parameters that this rank updates. Elements [0, decayed) have weight decay.
struct ShardView {
  Tensor param;  // [n], f32 or bf16
  Tensor grad;   // [n], gradient of the summed loss
  int64_t decayed = 0;
};

struct AdamwOptions {
  float beta1 = 0.9F, beta2 = 0.95F, eps = 1e-8F, weight_decay = 0.1F;
};

class AdamW {
 public:
  // Takes its state from `arena` (purpose optim): per shard a master if the parameter is not fp32,
  // and two moments, which are set to zero on `stream`. Master weights are whatever weights() is
  // filled with.
  AdamW(device::Stream& stream, device::Arena& arena, std::span<const ShardView> shards,
        const AdamwOptions& options);

  // The fp32 weights of shard i: master, or the parameter itself.
  Tensor weights(int shard) const;
  Tensor first_moment(int shard) const { return state_[static_cast<size_t>(shard)].m; }
  Tensor second_moment(int shard) const { return state_[static_cast<size_t>(shard)].v; }
  // After weights(i) were written from outside: rounds them into the parameters.
  void publish(device::Stream&, int shard) const;

  // One update of shard i, with learning rate, scale and skip flag from `state` (one
  // kernels::StepState).
  void step(device::Stream&, ConstTensor state, int shard) const;

 private:
  struct State {
    Tensor master, m, v;
  };
  std::vector<ShardView> shards_;
  std::vector<State> state_;
  AdamwOptions options_;
};

}  // namespace trireme::optim
