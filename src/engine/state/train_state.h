// SPDX-License-Identifier: Apache-2.0
// TrainState: the memory of everything that a rank keeps from step to step besides parameters, as
// spec::StateTensor lists it: master weights and the optimizer's tensors, one flat range each per
// bucket, and own tensors of layers.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "device/memory.h"
#include "engine/groups/data_groups.h"
#include "engine/groups/tensor_group.h"
#include "engine/state/buckets.h"
#include "optim/shard_weights.h"
#include "spec/plan.h"
#include "spec/state/state.h"

namespace trireme::engine {

class TrainState {
 public:
  // Takes memory for the state of all buckets from `arena` (purpose optim), and sets it to zero on
  // the compute stream. The references must outlive it. Under an inference plan there are only the
  // own tensors that forward passes read, which are no parts.
  TrainState(const spec::ModelSpec&, const spec::Plan&, const Buckets&, DataGroups&, TensorGroup&,
             device::Arena& arena);

  // A part of one tensor that this rank holds.
  struct Part {
    spec::StateTensor tensor;
    spec::Range range;         // elements of the bucket; of an own tensor: of its flat form
    optim::FlatFloats floats;  // a view of the range
  };
  // Returns the parts of a bucket, in the order of its list; parts without elements are left out.
  // Own tensors of a layer belong to its first bucket.
  std::vector<Part> parts(int bucket) const;
  // Returns the elements that this rank holds of an optimizer's tensor, possibly none.
  device::Tensor tensor(int bucket, std::string_view name) const;
  // Returns the own tensors of layer `layer` of the model, flat, in the order of its list in
  // training. Those that the plan does not have are empty.
  std::span<const device::Tensor> own(int layer) const;
  // Returns one of them by its name. REQUIRES: a training plan that has it.
  device::Tensor own(int layer, std::string_view name) const;

  // ---- fp32 weights of a bucket's updated range
  const optim::ShardWeights& weights(int bucket) const { return at(bucket).weights; }
  // Initialisation in two steps, before the first update: the caller writes the fp32 weights to
  // first_weights(), then calls take_first_weights(). Split masters borrow memory of the
  // optimizer's tensors, which is zero again afterwards.
  device::Tensor first_weights(int bucket) const;
  void take_first_weights(int bucket) const;

  // Reduces own tensors over all ranks that have a copy of their layer, at the end of a step; or
  // only those of one name. Collective.
  void reduce_own(std::string_view only = {});

 private:
  void take_inputs(const spec::ModelSpec&, const spec::Plan&, device::Arena&);

  struct OfBucket {
    std::vector<spec::StateTensor> list;
    optim::ShardWeights weights;
    device::Tensor memory;                // [n] f32: the optimizer's tensors, one after the other
    std::vector<device::Tensor> tensors;  // by list: views of it; empty for weights and own ones
    std::vector<spec::Range> ranges;      // by list
    std::vector<device::Tensor> own;
  };
  const OfBucket& at(int bucket) const { return buckets_[static_cast<size_t>(bucket)]; }

  const Buckets& order_;
  DataGroups& groups_;
  TensorGroup& tensor_;
  std::vector<OfBucket> buckets_;
};

}  // namespace trireme::engine
