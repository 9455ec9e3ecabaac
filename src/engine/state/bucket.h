// SPDX-License-Identifier: Apache-2.0
// Bucket: the parameters and gradients of one layer, flat, as one rank of the data axes holds them,
// and the views of them that the layer sees. Which of the tensors below are the same memory is what
// ZeRO stages differ in; buckets.h moves data between them.
#pragma once

#include <span>
#include <vector>

#include "device/memory.h"
#include "spec/parallel/bucket.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::engine {

// Where a bucket takes its memory from.
struct BucketMemory {
  device::Arena& params;
  device::Arena& grads;
  device::Tensor gathered;  // shared: whole parameters come here; absent: the bucket keeps them
  device::Tensor work;      // shared: whole gradients are made here; absent: in its own
  device::Tensor leaf;  // for gradients, instead of its own (spec/memory/grad_places.h); or absent
};

class Bucket {
 public:
  // Gradients are absent under an inference plan. So are the views of a tied copy: see set_views().
  Bucket(std::vector<spec::Param> params, const spec::Plan&, const spec::Coord&,
         const BucketMemory&);

  const std::vector<spec::Param>& specs() const { return specs_; }
  const spec::BucketLayout& layout() const { return layout_; }
  // Elements of the bucket that this rank updates, and that it adds up.
  const spec::Range& updated() const { return updated_; }
  const spec::Range& reduced() const { return reduced_; }

  // ---- parameters
  device::Tensor whole_params() const { return whole_params_; }  // what layers read
  device::Tensor own_params() const { return own_params_; }      // of updated(): the optimizer's

  // ---- gradients, from what layers add to down to what the optimizer reads
  device::Tensor leaf() const { return leaf_; }  // whole: of one worker, in one round
  std::span<const device::Tensor> nodes() const { return nodes_; }  // whole: workers that wait
  device::Tensor round_sum() const { return round_sum_; }           // of reduced(): over rounds
  device::Tensor own_grads() const { return own_grads_; }           // of updated(): final
  device::Tensor reduced_grads() const {                            // of reduced(): final
    return own_grads_.slice_rows(reduced_.begin - updated_.begin, reduced_.end - reduced_.begin);
  }

  // By the layer's parameter enum; those it does not have are empty.
  std::span<const device::Tensor> params() const { return params_; }
  std::span<const device::Tensor> grads() const { return grads_; }

  // Sets the views of a parameter that has no place in the bucket: a tied copy (SharedTable).
  void set_views(size_t param, device::Tensor params, device::Tensor grads);

 private:
  void take_grads(const spec::Plan&, const BucketMemory&);

  std::vector<spec::Param> specs_;
  spec::BucketLayout layout_;
  spec::Range updated_, reduced_;
  device::Tensor whole_params_, own_params_;
  device::Tensor leaf_, round_sum_, own_grads_;
  std::vector<device::Tensor> nodes_;
  std::vector<device::Tensor> params_, grads_;
};

}  // namespace trireme::engine
