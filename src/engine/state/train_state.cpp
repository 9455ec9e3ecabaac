// SPDX-License-Identifier: Apache-2.0
#include "engine/state/train_state.h"

#include "base/check.h"
#include "kernels/ops.h"
#include "spec/facts/facts.h"
#include "spec/state/state_layout.h"

namespace trireme::engine {

namespace ops = kernels::ops;

TrainState::TrainState(const spec::ModelSpec& model, const spec::Plan& plan, const Buckets& buckets,
                       DataGroups& groups, TensorGroup& tensor, device::Arena& arena)
    : order_(buckets),
      groups_(groups),
      tensor_(tensor),
      buckets_(static_cast<size_t>(buckets.size())) {
  if (plan.inference) {
    take_inputs(model, plan, arena);
    return;
  }
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets[static_cast<int>(b)];
    OfBucket& state = buckets_[b];
    const int layer = buckets.key(static_cast<int>(b)).layer;
    state.list = spec::state_of(model, layer, plan);
    if (buckets.of_layer(layer).begin != static_cast<int64_t>(b)) {
      std::erase_if(state.list, [](const spec::StateTensor& one) { return one.is_own(); });
    }
    state.list = spec::bucket_state(state.list, bucket.layout());
    const bool has_codes = bucket.layout().has_codes();
    if (!has_codes) state.weights.param = bucket.own_params();
    const spec::StateBytes bytes = spec::state_bytes(state.list, plan, bucket.layout());
    state.memory = arena.take({{bytes.elements}, base::DType::f32});
    ops::fill(groups.compute(), {.d = state.memory});
    int64_t next = 0;
    for (const spec::StateTensor& tensor_spec : state.list) {
      device::Tensor& view = state.tensors.emplace_back();
      spec::Range& range = state.ranges.emplace_back();
      if (tensor_spec.is_own()) {
        state.own.push_back(arena.take(spec::own_state_spec(tensor_spec, plan.mesh)));
        ops::fill(groups.compute(), {.d = state.own.back()});
        range = {0, state.own.back().elements()};
        continue;
      }
      range = spec::state_range(tensor_spec, plan, groups.coord(), bucket.layout());
      const int64_t count = range.end - range.begin;
      if (tensor_spec.name == spec::weight_state) {
        if (has_codes) {
          state.weights.param = arena.take({{count}, tensor_spec.dtype});
        } else if (!tensor_spec.is_param) {
          state.weights.master = arena.take({{count}, tensor_spec.dtype});
        }
        continue;
      }
      view = state.memory.slice_rows(next, count);
      next += count;
    }
  }
}

void TrainState::take_inputs(const spec::ModelSpec& model, const spec::Plan& plan,
                             device::Arena& arena) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const int layer = order_.key(static_cast<int>(b)).layer;
    if (order_.of_layer(layer).begin != static_cast<int64_t>(b)) continue;
    for (const spec::StateTensor& tensor :
         spec::state_of(model, layer, plan.optimizer, plan.recipe)) {
      if (!tensor.is_own()) continue;
      device::Tensor& own = buckets_[b].own.emplace_back();
      if (!tensor.is_input) continue;
      own = arena.take(spec::own_state_spec(tensor, plan.mesh));
      ops::fill(groups_.compute(), {.d = own});
    }
  }
}

std::vector<TrainState::Part> TrainState::parts(int bucket) const {
  const OfBucket& state = at(bucket);
  std::vector<Part> all;
  size_t own = 0;
  for (size_t i = 0; i < state.list.size(); ++i) {
    const spec::StateTensor& tensor_spec = state.list[i];
    const spec::Range& range = state.ranges[i];
    const optim::FlatFloats floats = tensor_spec.is_own() ? optim::FlatFloats{state.own[own++]}
                                     : tensor_spec.name == spec::weight_state
                                         ? state.weights.floats()
                                         : optim::FlatFloats{state.tensors[i]};
    if (range.begin < range.end) all.push_back({tensor_spec, range, floats});
  }
  return all;
}

device::Tensor TrainState::tensor(int bucket, std::string_view name) const {
  const OfBucket& state = at(bucket);
  for (size_t i = 0; i < state.list.size(); ++i) {
    if (state.list[i].name == name) return state.tensors[i];
  }
  TRIREME_CHECK(false, "the state has no tensor '{}'", name);
  return {};
}

std::span<const device::Tensor> TrainState::own(int layer) const {
  return at(static_cast<int>(order_.of_layer(layer).begin)).own;
}

device::Tensor TrainState::first_weights(int bucket) const {
  const optim::ShardWeights& weights = at(bucket).weights;
  return weights.is_split() ? at(bucket).memory.slice_rows(0, weights.param.elements())
                            : weights.floats().values;
}

void TrainState::take_first_weights(int bucket) const {
  const device::Tensor first = first_weights(bucket);
  at(bucket).weights.set(groups_.compute(), first);
  if (at(bucket).weights.is_split()) ops::fill(groups_.compute(), {.d = first});
}

device::Tensor TrainState::own(int layer, std::string_view name) const {
  const OfBucket& state = at(static_cast<int>(order_.of_layer(layer).begin));
  size_t index = 0;
  for (const spec::StateTensor& tensor_spec : state.list) {
    if (tensor_spec.is_own() && tensor_spec.name == name) return state.own[index];
    if (tensor_spec.is_own()) ++index;
  }
  TRIREME_CHECK(false, "layer {} has no own tensor '{}'", layer, name);
  return {};
}

void TrainState::reduce_own(std::string_view only) {
  for (const OfBucket& state : buckets_) {
    size_t own = 0;
    for (const spec::StateTensor& tensor_spec : state.list) {
      if (!tensor_spec.is_own()) continue;
      const device::Tensor values = state.own[own++];
      if (tensor_spec.reduction == spec::StateReduction::none) continue;
      if (!only.empty() && tensor_spec.name != only) continue;
      const bool is_max = tensor_spec.reduction == spec::StateReduction::max;
      const comm::Reduce how = is_max ? comm::Reduce::max : comm::Reduce::sum;
      const bool is_along_tp = is_max || tensor_.sequence_parallel();
      if (is_along_tp && !spec::is_cut_along_tp(tensor_spec)) tensor_.reduce_state(values, how);
      groups_.reduce_state(values, how);
    }
  }
}

}  // namespace trireme::engine
