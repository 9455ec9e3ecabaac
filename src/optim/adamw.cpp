// SPDX-License-Identifier: Apache-2.0
#include "optim/adamw.h"

#include "base/check.h"
#include "kernels/ops.h"

namespace trireme::optim {
namespace {

// Elements [begin, end) of a flat tensor; an absent tensor stays absent.
Tensor part(const Tensor& flat, int64_t begin, int64_t end) {
  return flat ? flat.slice_rows(begin, end - begin) : Tensor{};
}

}  // namespace

AdamW::AdamW(device::Stream& stream, device::Arena& arena, std::span<const ShardView> shards,
             const AdamwOptions& options, base::DType master)
    : shards_(shards.begin(), shards.end()), options_(options) {
  for (const ShardView& shard : shards_) {
    TRIREME_CHECK(shard.param.shape == shard.grad.shape && shard.decayed <= shard.param.elements(),
                  "adamw: parameters {}, gradients {}, {} elements with weight decay",
                  shard.param.shape.to_string(), shard.grad.shape.to_string(), shard.decayed);
    const base::TensorSpec f32{shard.param.shape, base::DType::f32};
    State state;
    if (shard.param.dtype != base::DType::f32) {
      state.master = arena.take({shard.param.shape, master});
    }
    state.m = arena.take(f32);
    state.v = arena.take(f32);
    kernels::ops::fill(stream, {.d = state.m});
    kernels::ops::fill(stream, {.d = state.v});
    state_.push_back(state);
  }
}

Tensor AdamW::first_weights(int shard) const {
  const State& state = state_[static_cast<size_t>(shard)];
  return state.is_split() ? state.m : weights(shard).values;
}

void AdamW::take_first_weights(device::Stream& stream, int shard) const {
  const State& state = state_[static_cast<size_t>(shard)];
  if (state.is_split()) {
    const FlatFloats split = weights(shard);
    kernels::ops::copy(stream, {.x = state.m, .d = split.values, .low = split.low});
    kernels::ops::fill(stream, {.d = state.m});
  }
  publish(stream, shard);
}

FlatFloats AdamW::weights(int shard) const {
  const auto at = static_cast<size_t>(shard);
  const Tensor &master = state_[at].master, &param = shards_[at].param;
  if (!master) return {param};
  return state_[at].is_split() ? FlatFloats{param, master} : FlatFloats{master};
}

void AdamW::publish(device::Stream& stream, int shard) const {
  const auto at = static_cast<size_t>(shard);
  if (state_[at].master && !state_[at].is_split()) {
    kernels::ops::copy(stream, {.x = state_[at].master, .d = shards_[at].param});
  }
}

void AdamW::step(device::Stream& stream, ConstTensor step_state, int index) const {
  const ShardView& shard = shards_[static_cast<size_t>(index)];
  const State& state = state_[static_cast<size_t>(index)];
  const auto update = [&](int64_t begin, int64_t end, float weight_decay) {
    if (begin == end) return;
    kernels::ops::adamw(stream, {.param = part(shard.param, begin, end),
                                 .master = part(state.master, begin, end),
                                 .m = part(state.m, begin, end),
                                 .v = part(state.v, begin, end),
                                 .grad = part(shard.grad, begin, end),
                                 .state = step_state,
                                 .beta1 = options_.beta1,
                                 .beta2 = options_.beta2,
                                 .eps = options_.eps,
                                 .weight_decay = weight_decay});
  };
  update(0, shard.decayed, options_.weight_decay);
  update(shard.decayed, shard.param.elements(), 0);
}

}  // namespace trireme::optim
