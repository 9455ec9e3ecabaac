// SPDX-License-Identifier: Apache-2.0
#include "engine/state/tensor_group.h"

#include <algorithm>

#include "engine/state/host_floats.h"

namespace trireme::engine {

using spec::Axis;
using spec::TrafficTable;

TensorGroup::TensorGroup(const spec::Plan& plan, comm::Mesh* mesh, device::Stream& compute)
    : compute_(compute), sequence_parallel_(plan.layout.sequence_parallel) {
  if (plan.mesh[Axis::tp] > 1) group_ = &mesh->along(Axis::tp, comm::Channel::compute);
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

void TensorGroup::max_state(device::Tensor inout) {
  if (group_ == nullptr) return;
  group_->all_reduce(compute_, inout, comm::Reduce::max);
  count(&TrafficTable::layer_state);
}

std::vector<float> TensorGroup::gather_for_host(std::span<const float> own) {
  const auto elements = static_cast<int64_t>(own.size());
  std::vector<float> all(own.size() * static_cast<size_t>(ranks()));
  // In pieces that fit into the buffer, because nothing may be allocated.
  const int64_t room = buffer_.bytes() / static_cast<int64_t>(sizeof(float)) / ranks();
  for (int64_t begin = 0; begin < elements; begin += room) {
    const int64_t count = std::min(room, elements - begin);
    const device::Tensor piece =
        device::view_of(buffer_.data, {{ranks() * count}, base::DType::f32});
    const device::Tensor mine = piece.slice_rows(group_->rank() * count, count);
    upload_floats(compute_, {mine},
                  own.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
    group_->all_gather(compute_, piece, mine);
    const std::vector<float> values = download_floats(compute_, {piece});
    for (int64_t r = 0; r < ranks(); ++r) {
      std::copy_n(values.begin() + r * count, count, all.begin() + r * elements + begin);
    }
  }
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
