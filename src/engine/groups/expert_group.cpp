// SPDX-License-Identifier: Apache-2.0
#include "engine/groups/expert_group.h"

#include <algorithm>

#include "base/check.h"
#include "engine/state/host_floats.h"
#include "spec/experts/expert_traffic.h"

namespace trireme::engine {

using device::Wait;
using spec::Axis;
using spec::TrafficTable;

ExpertGroup::ExpertGroup(const spec::ModelSpec& model, const spec::Plan& plan, comm::Mesh* mesh,
                         device::Device& device, device::Stream& compute)
    : compute_(compute), etp_(plan.mesh[Axis::etp]) {
  if (mesh == nullptr || spec::moe_of(model) == nullptr) return;
  const auto along = [&](const std::vector<Axis>& axes, Wait wait,
                         comm::Channel channel = comm::Channel::expert) -> comm::Communicator* {
    if (spec::ranks_along(plan.mesh, axes) == 1) return nullptr;
    comm::Communicator* group = &mesh->along(axes, channel);
    // Axes with the same ranks share a group, which waits for the first of them.
    if (std::ranges::find(groups_, group) == groups_.end()) {
      groups_.push_back(group);
      group->set_wait(wait);
    }
    return group;
  };
  boundary_.ep = along({Axis::ep}, Wait::ep);
  boundary_.etp = along({Axis::etp}, Wait::ep);
  cuts_ = along({Axis::ep, Axis::etp}, Wait::ep);
  boundary_.tokens = along(spec::token_axes(plan), plan.mesh[Axis::cp] > 1 ? Wait::cp : Wait::tp);
  if (spec::sums_loads_of_step(model)) {
    boundary_.step = along(spec::step_axes(plan), Wait::data);
  }
  if (boundary_.ep != nullptr) {
    boundary_.rows = along({Axis::ep}, Wait::ep, comm::Channel::expert_rows);
    side_ = device.make_stream("ep");
    boundary_.side = side_.get();
  }
  counted_ = sent_bytes();
}

int64_t ExpertGroup::sent_bytes() const {
  int64_t bytes = 0;
  for (const comm::Communicator* group : groups_) bytes += group->traffic().bytes;
  return bytes;
}

spec::Coord ExpertGroup::coord_of(int rank, spec::Coord own) const {
  own[Axis::ep] = rank / etp_;
  own[Axis::etp] = rank % etp_;
  return own;
}

std::vector<float> ExpertGroup::gather_for_host(std::span<const float> own) {
  TRIREME_CHECK(cuts_ != nullptr, "a gather of experts on one rank");
  std::vector<float> all = engine::gather_for_host(*cuts_, compute_, buffer_, own);
  count(&TrafficTable::other);
  return all;
}

void ExpertGroup::set_buffer(device::Tensor buffer) {
  buffer_ = buffer;
  for (comm::Communicator* group : groups_) group->set_buffer(buffer);
}

void ExpertGroup::count(int64_t TrafficTable::*kind) {
  const int64_t bytes = sent_bytes();
  traffic_.*kind += bytes - counted_;
  counted_ = bytes;
}

}  // namespace trireme::engine
