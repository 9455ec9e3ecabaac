// SPDX-License-Identifier: Apache-2.0
// AdamW over flat shards: owns master weights and moments, independent of buckets, layers and
// ranks.
#pragma once

#include <span>
#include <vector>

#include "device/device.h"
#include "device/memory.h"
#include "optim/flat_floats.h"

namespace trireme::optim {

using device::ConstTensor;
using device::Tensor;

// A flat range of parameters that this rank updates. Elements [0, decayed) have weight decay.
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
  // and two moments, which are set to zero on `stream`. A master is an fp32 copy or (`master` =
  // u16, for bf16 parameters) the low parts of fp32 weights whose high parts are the parameters.
  AdamW(device::Stream& stream, device::Arena& arena, std::span<const ShardView> shards,
        const AdamwOptions& options, base::DType master = base::DType::f32);

  // Initialisation in two steps, before the first update: the caller writes the fp32 weights of
  // shard i to first_weights(i), then calls take_first_weights(i). Split masters borrow the memory
  // of the first moment, which is zero again afterwards.
  Tensor first_weights(int shard) const;
  void take_first_weights(device::Stream&, int shard) const;

  // Returns the fp32 weights of shard i: the master, the parameter itself, or both as split floats.
  FlatFloats weights(int shard) const;
  Tensor first_moment(int shard) const { return state_[static_cast<size_t>(shard)].m; }
  Tensor second_moment(int shard) const { return state_[static_cast<size_t>(shard)].v; }
  // Called after the caller wrote weights(i): rounds them into the parameters, unless the
  // parameters are part of them.
  void publish(device::Stream&, int shard) const;

  // Updates shard i, with learning rate, scale and skip flag from `state` (one
  // kernels::StepState).
  void step(device::Stream&, ConstTensor state, int shard) const;

 private:
  struct State {
    Tensor master, m, v;
    bool is_split() const { return master && master.dtype == base::DType::u16; }
  };
  std::vector<ShardView> shards_;
  std::vector<State> state_;
  AdamwOptions options_;
};

}  // namespace trireme::optim
