// SPDX-License-Identifier: Apache-2.0
// Bucket: the parameters and gradients of one layer that have one view of the mesh, flat, as one
// rank holds them, and the tensors that the layer reads and writes. ZeRO stages differ only in
// which of these tensors alias; buckets.h moves data between them.
#pragma once

#include <span>
#include <vector>

#include "device/memory.h"
#include "spec/parallel/bucket.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::engine {

// The memory from which a bucket takes its tensors.
struct BucketMemory {
  device::Arena& params;
  device::Arena& grads;
  // Shared buffers of whole parameters and of whole gradients; absent: the bucket has its own.
  device::Tensor gathered, work;
  // Memory in the stash for gradients (spec/memory/grad_places.h); absent: the bucket has its own.
  device::Tensor leaf;
};

class Bucket {
 public:
  // `params`: all of the layer; the bucket has those of `layout`. Gradients are absent under an
  // inference plan. So are the tensors of a tied copy: see set_views().
  Bucket(std::vector<spec::Param> params, spec::BucketLayout layout, const spec::Plan&,
         const spec::Coord&, const BucketMemory&);

  const std::vector<spec::Param>& specs() const { return specs_; }
  const spec::BucketLayout& layout() const { return layout_; }
  // Elements of the bucket that this rank updates, and those that it reduces.
  const spec::Range& updated() const { return updated_; }
  const spec::Range& reduced() const { return reduced_; }

  // ---- parameters, in the storage type of the layout
  device::Tensor whole_params() const { return whole_params_; }  // read by layers
  device::Tensor own_params() const { return own_params_; }  // updated(): written by the optimizer

  // ---- gradients, from those that layers write to those that the optimizer reads
  // Whole: one worker's gradients of one round.
  device::Tensor leaf() const { return leaf_; }
  // Whole: sums of earlier workers that are not yet merged.
  std::span<const device::Tensor> nodes() const { return nodes_; }
  device::Tensor round_sum() const { return round_sum_; }  // reduced(): the sum over rounds
  device::Tensor own_grads() const { return own_grads_; }  // updated(): final
  device::Tensor reduced_grads() const {                   // reduced(): final
    return own_grads_.slice_rows(reduced_.begin - updated_.begin, reduced_.end - reduced_.begin);
  }

  // By the layer's parameter enum; parameters that it does not have are empty.
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
