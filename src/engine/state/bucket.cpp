// SPDX-License-Identifier: Apache-2.0
#include "engine/state/bucket.h"

#include "base/check.h"

namespace trireme::engine {
namespace {

base::Shape shape_of(const std::vector<int64_t>& dims) {
  TRIREME_CHECK(!dims.empty() && dims.size() <= 3, "a parameter of {} dimensions", dims.size());
  if (dims.size() == 1) return {dims[0]};
  return dims.size() == 2 ? base::Shape{dims[0], dims[1]} : base::Shape{dims[0], dims[1], dims[2]};
}

device::Tensor range_of(const device::Tensor& flat, const spec::Range& range) {
  return flat.slice_rows(range.begin, range.end - range.begin);
}

}  // namespace

Bucket::Bucket(std::vector<spec::Param> params, spec::BucketLayout layout, const spec::Plan& plan,
               const spec::Coord& coord, const BucketMemory& memory)
    : specs_(std::move(params)),
      layout_(std::move(layout)),
      updated_(spec::updated_range(plan, coord, layout_.size())),
      reduced_(spec::reduced_range(plan, coord, layout_.size())),
      params_(specs_.size()),
      grads_(specs_.size()) {
  const base::TensorSpec whole{{layout_.elements}, layout_.storage};
  if (spec::gathers_params(plan, layout_.view)) {
    own_params_ = memory.params.take({{updated_.end - updated_.begin}, layout_.storage});
    whole_params_ = device::view_of(memory.gathered.data, whole);
  } else {
    whole_params_ = memory.params.take(whole);
    own_params_ = range_of(whole_params_, updated_);
  }
  if (!plan.inference) take_grads(plan, memory);
  for (const spec::BucketEntry& entry : layout_.entries) {
    const auto at = static_cast<size_t>(entry.param);
    const base::Shape shape = shape_of(spec::local_shape(specs_[at].shard, plan.mesh));
    params_[at] = whole_params_.slice_rows(entry.offset, entry.elements).reshape(shape);
    if (!leaf_) continue;
    grads_[at] = leaf_.slice_rows(entry.offset, entry.elements).reshape(shape);
  }
}

void Bucket::take_grads(const spec::Plan& plan, const BucketMemory& memory) {
  const spec::GradSpecs specs = spec::grad_specs(plan, layout_.size());
  for (const base::TensorSpec& node : specs.nodes) nodes_.push_back(memory.grads.take(node));
  if (plan.zero.grads) {
    leaf_ = memory.work.slice_rows(0, layout_.elements);
    own_grads_ = memory.grads.take(specs.shard);
    round_sum_ = reduced_grads();
    return;
  }
  leaf_ = memory.leaf ? memory.leaf : memory.grads.take(specs.leaf);
  own_grads_ = range_of(leaf_, updated_);
  round_sum_ =
      specs.round_sum.shape.ndim() > 0 ? memory.grads.take(specs.round_sum) : reduced_grads();
}

void Bucket::set_views(size_t param, device::Tensor params, device::Tensor grads) {
  TRIREME_CHECK(specs_[param].tied_copy, "'{}' has a place in the bucket",
                specs_[param].shard.name);
  params_[param] = params;
  grads_[param] = grads;
}

}  // namespace trireme::engine
