// SPDX-License-Identifier: Apache-2.0
#include "engine/groups/context_group.h"

#include <vector>

#include "base/check.h"

namespace trireme::engine {

using spec::Axis;
using spec::TrafficTable;

ContextGroup::ContextGroup(const spec::Plan& plan, comm::Mesh* mesh, device::Device& device,
                           device::Stream& compute)
    : compute_(compute) {
  if (plan.mesh[Axis::cp] == 1) return;
  all_ = &mesh->along(Axis::cp, comm::Channel::compute);
  counted_ = all_->traffic().bytes;  // of an engine before this one
  const spec::ContextSplit split = spec::local_shape_of(plan).context();
  const int place = all_->rank();
  const auto ranks = [](int first, int count, int stride) {
    std::vector<int> all;
    for (int i = 0; i < count; ++i) all.push_back(first + i * stride);
    return all;
  };
  comm::Communicator::Options options = all_->options();
  if (split.ulysses > 1) {
    options.name = "ulysses";
    ulysses_ =
        all_->subgroup(ranks(place / split.ulysses * split.ulysses, split.ulysses, 1), options);
    ulysses_->set_wait(device::Wait::cp);
  }
  if (split.groups > 1) {
    options.name = split.is_ring ? "ring" : "keys";
    groups_ = all_->subgroup(ranks(place % split.ulysses, split.groups, split.ulysses), options);
    groups_->set_wait(device::Wait::cp);
    side_ = device.make_stream("cp");
  }
}

void ContextGroup::gather(device::Tensor all, device::ConstTensor own) {
  TRIREME_CHECK(all_ != nullptr, "a gather along cp on one rank");
  all_->all_gather(compute_, all, own);
}

void ContextGroup::set_buffer(device::Tensor buffer) {
  if (groups_) groups_->set_buffer(buffer);
}

void ContextGroup::count(int64_t TrafficTable::*kind) {
  if (all_ == nullptr) return;
  int64_t bytes = all_->traffic().bytes;
  for (const auto* group : {ulysses_.get(), groups_.get()}) {
    if (group != nullptr) bytes += group->traffic().bytes;
  }
  traffic_.*kind += bytes - counted_;
  counted_ = bytes;
}

}  // namespace trireme::engine
