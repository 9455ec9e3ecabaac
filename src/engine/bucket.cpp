// SPDX-License-Identifier: Apache-2.0
#include "engine/bucket.h"

#include "base/check.h"

namespace trireme::engine {
namespace {

base::Shape shape_of(const std::vector<int64_t>& dims) {
  TRIREME_CHECK(dims.size() == 1 || dims.size() == 2, "a parameter of {} dimensions", dims.size());
  return dims.size() == 1 ? base::Shape{dims[0]} : base::Shape{dims[0], dims[1]};
}

}  // namespace

Bucket::Bucket(std::vector<spec::Param> params, const spec::Recipe& recipe,
               const spec::Sizes& sizes, device::Arena& param_arena, device::Arena* grad_arena)
    : specs_(std::move(params)),
      layout_(spec::bucket_layout(specs_, sizes)),
      flat_params_(param_arena.take({{layout_.elements}, recipe.storage})),
      params_(specs_.size()),
      grads_(specs_.size()) {
  if (grad_arena != nullptr) flat_grads_ = grad_arena->take({{layout_.elements}, recipe.grad});
  for (const spec::BucketEntry& entry : layout_.entries) {
    const auto at = static_cast<size_t>(entry.param);
    const base::Shape shape = shape_of(spec::local_shape(specs_[at].shard, sizes));
    params_[at] = flat_params_.slice_rows(entry.offset, entry.elements).reshape(shape);
    if (!flat_grads_) continue;
    grads_[at] = flat_grads_.slice_rows(entry.offset, entry.elements).reshape(shape);
  }
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!specs_[i].tied_copy || grad_arena == nullptr) continue;
    const base::Shape shape = shape_of(spec::local_shape(specs_[i].shard, sizes));
    grads_[i] = grad_arena->take({{shape.elements()}, recipe.grad}).reshape(shape);
  }
}

void Bucket::tie(const Bucket& owner) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!specs_[i].tied_copy) continue;
    const int at = owner.find(specs_[i].shard.name);
    if (at >= 0) params_[i] = owner.params()[static_cast<size_t>(at)];
  }
}

int Bucket::find(const std::string& name) const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].shard.name == name && !specs_[i].tied_copy) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace trireme::engine
