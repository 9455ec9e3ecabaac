// SPDX-License-Identifier: Apache-2.0
// WeightCodes: the parameters of buckets that are 8-bit codes, made from the fp32 weights that the
// optimizer holds. A rank has the weights of its shard only, so the largest magnitudes, from which
// scales follow, are the maximum over shards. Codes therefore have the same bits on every layout.
#pragma once

#include <array>
#include <map>
#include <span>
#include <vector>

#include "device/memory.h"
#include "engine/groups/data_groups.h"
#include "engine/precision/numerics.h"
#include "engine/state/buckets.h"
#include "engine/state/train_state.h"
#include "spec/plan.h"

namespace trireme::engine {

class WeightCodes {
 public:
  // Takes the memory of spec::weight_scale_specs() from `params` and `optim`. The references must
  // outlive it.
  WeightCodes(const spec::ModelSpec&, const spec::Plan&, const Buckets&, const TrainState&,
              DataGroups&, const Numerics&, device::Arena& params, device::Arena& optim);

  bool has(int bucket) const { return buckets_[bucket].layout().has_codes(); }
  // Returns the scales of a layer's codes, by its parameter enum; others are empty.
  std::span<const device::Tensor> scales(int layer) const;

  // ---- after a change of weights, on the compute stream; in this order. Nothing is done for
  // buckets without codes.
  void measure(int bucket);  // the largest magnitudes of the rank's shard
  void reduce();             // of all buckets, over shards. Collective
  void quantize(int bucket, bool counts);
  // All of it for one bucket. Collective.
  void make(int bucket);

 private:
  // One parameter of a bucket.
  struct Entry {
    spec::MatrixShape shape;
    int param = 0;
    spec::Range held;            // of its elements: those of the rank's shard
    int64_t first = 0;           // of `held` in the shard
    device::Tensor amax, scale;  // flat
  };
  size_t index(int bucket) const {
    return buckets_[bucket].layout().view == spec::ParamView::expert ? 1 : 0;
  }
  device::Tensor weights(int bucket, const Entry&) const;

  const Buckets& buckets_;
  const TrainState& state_;
  DataGroups& groups_;
  const Numerics& numerics_;
  spec::ScaleShape shape_ = spec::ScaleShape::tensor;
  bool is_sharded_ = false;
  // For dense buckets, and for expert buckets.
  std::array<device::Tensor, 2> amax_, scale_;
  std::vector<spec::Range> ranges_;                    // by bucket: in amax_ and scale_
  std::vector<std::vector<Entry>> entries_;            // by bucket
  std::map<int, std::vector<device::Tensor>> scales_;  // by layer
};

}  // namespace trireme::engine
