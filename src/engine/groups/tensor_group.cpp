// SPDX-License-Identifier: Apache-2.0
#include "engine/groups/tensor_group.h"

#include <algorithm>

#include "engine/state/host_floats.h"

namespace trireme::engine {

using spec::Axis;
using spec::TrafficTable;

TensorGroup::TensorGroup(const spec::Plan& plan, comm::Mesh* mesh, device::Stream& compute)
    : compute_(compute), sequence_parallel_(plan.layout.sequence_parallel) {
  if (plan.mesh[Axis::tp] == 1) return;
  group_ = &mesh->along(Axis::tp, comm::Channel::compute);
  group_->set_wait(device::Wait::tp);
  counted_ = group_->traffic().bytes;  // of an engine before this one
}

void TensorGroup::sum_grads(device::Tensor inout) {
  if (group_ == nullptr || inout.elements() == 0) return;
  group_->all_reduce(compute_, inout, comm::Reduce::sum);
  count(&TrafficTable::tp_grads);
}

void TensorGroup::gather_update(device::Tensor out, device::ConstTensor own) {
  group_->all_gather(compute_, out, own);
  count(&TrafficTable::updates);
}

void TensorGroup::reduce_state(device::Tensor inout, comm::Reduce how) {
  if (group_ == nullptr) return;
  group_->all_reduce(compute_, inout, how);
  count(&TrafficTable::layer_state);
}

std::vector<float> TensorGroup::gather_for_host(std::span<const float> own) {
  std::vector<float> all = engine::gather_for_host(*group_, compute_, buffer_, own);
  count(&TrafficTable::other);
  return all;
}

void TensorGroup::set_buffer(device::Tensor buffer) {
  buffer_ = buffer;
  if (group_ != nullptr) group_->set_buffer(buffer);
}

void TensorGroup::count(int64_t TrafficTable::*kind) {
  if (group_ == nullptr) return;
  traffic_.*kind += group_->traffic().bytes - counted_;
  counted_ = group_->traffic().bytes;
}

}  // namespace trireme::engine
