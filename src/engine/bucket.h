// SPDX-License-Identifier: Apache-2.0
// Bucket: the parameters and gradients of one layer, flat, and the views of them that the layer
// sees.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "device/memory.h"
#include "spec/bucket.h"

namespace trireme::engine {

class Bucket {
 public:
  // Takes flat parameters and gradients, and a gradient accumulator of its own for every tied copy.
  // Without a gradient arena (inference) gradients are absent. The parameters of a tied copy are
  // those of its owner: see tie().
  Bucket(std::vector<spec::Param> params, const spec::Recipe&, const spec::Sizes&,
         device::Arena& param_arena, device::Arena* grad_arena);

  const std::vector<spec::Param>& specs() const { return specs_; }
  const spec::BucketLayout& layout() const { return layout_; }
  device::Tensor flat_params() const { return flat_params_; }
  device::Tensor flat_grads() const { return flat_grads_; }

  // By the layer's parameter enum; those it does not have are empty.
  std::span<const device::Tensor> params() const { return params_; }
  std::span<const device::Tensor> grads() const { return grads_; }

  // Makes the tied copies of this bucket read the parameter of the same name in `owner`.
  void tie(const Bucket& owner);
  // The index of the parameter called `name`, or -1.
  int find(const std::string& name) const;

 private:
  std::vector<spec::Param> specs_;
  spec::BucketLayout layout_;
  device::Tensor flat_params_, flat_grads_;
  std::vector<device::Tensor> params_, grads_;
};

}  // namespace trireme::engine
