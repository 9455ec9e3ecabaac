// SPDX-License-Identifier: Apache-2.0
#include "engine/state/data_groups.h"

#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "spec/parallel/sum_tree.h"

namespace trireme::engine {

using spec::Axis;
using spec::TrafficTable;

namespace {

std::string text_of(const spec::Sizes& sizes) {
  return fmt::format("pp = {}, dp = {}, zero = {}, cp = {}, tp = {}", sizes[Axis::pp],
                     sizes[Axis::dp], sizes[Axis::zero], sizes[Axis::cp], sizes[Axis::tp]);
}

}  // namespace

DataGroups::DataGroups(const spec::Plan& plan, comm::Mesh* mesh, device::Device& device,
                       device::Stream& compute)
    : compute_(compute), updates_all_(!plan.zero.optim) {
  const int ranks = spec::sum_ranks(plan.mesh);
  if (mesh == nullptr) {
    if (plan.mesh == spec::Sizes{}) return;
    throw base::ConfigError(fmt::format(
        "the plan needs several ranks ({}), but this process is one rank without a mesh: start "
        "that many ranks, or plan for one",
        text_of(plan.mesh)));
  }
  if (mesh->sizes() != plan.mesh) {
    throw base::ConfigError(
        fmt::format("the plan's mesh ({}) differs from the mesh of the ranks ({})",
                    text_of(plan.mesh), text_of(mesh->sizes())));
  }
  coord_ = mesh->coord();
  comm::Communicator& world = mesh->world();
  comm::Communicator::Options options = world.options();
  if (spec::closing_ranks(plan.mesh) > 1) {
    options.name = "closing";
    closing_ = world.split(0, spec::closing_rank(plan.mesh, coord_), options);
  }
  if (ranks == 1) return;
  own_stream_ = device.make_stream("dp");
  const spec::MeshView view = spec::mesh_view(spec::ParamView::dense);
  std::vector<Axis> axes = view.replicate;
  axes.insert(axes.end(), view.shard.begin(), view.shard.end());
  options.name = "data";
  const std::vector<int> members = comm::members(plan.mesh, world.rank(), axes);
  data_ = world.split(members.front(), spec::reduced_place(plan.mesh, coord_), options);
  if (view.replicas(plan.mesh) > 1) {
    copies_ = &mesh->along(view.replicate, comm::Channel::data);
  }
  if (view.shards(plan.mesh) > 1) shards_ = &mesh->along(view.shard, comm::Channel::data);

  order_.leaves = spec::leaves(plan);
  for (const int member : data_->world_ranks()) {
    const spec::Range held = spec::leaves_of(plan, comm::coord_of(plan.mesh, member));
    order_.parts.push_back(spec::tree_cover(order_.leaves, held));
  }
}

device::Event DataGroups::mark(device::Stream& of) const {
  return own_stream_ ? of.record() : device::Event{};
}

void DataGroups::after_compute() {
  if (own_stream_) own_stream_->wait(compute_.record());
}

void DataGroups::before_compute() {
  if (own_stream_) compute_.wait(own_stream_->record());
}

void DataGroups::reduce(device::Tensor out, std::span<const device::ConstTensor> parts) {
  counted(&TrafficTable::reduce_grads, data_.get(),
          [&](comm::Communicator& group) { group.reduce_scatter(stream(), out, parts, order_); });
}

void DataGroups::gather_grads(device::Tensor out, device::ConstTensor own) {
  comm::Communicator* group = updates_all_ ? data_.get() : copies_;
  if (group == nullptr) return;
  counted(&TrafficTable::gather_grads, group,
          [&](comm::Communicator& g) { g.all_gather(stream(), out, own); });
}

void DataGroups::gather_params(device::Tensor out, device::ConstTensor own) {
  counted(&TrafficTable::gather_params, shards_,
          [&](comm::Communicator& group) { group.all_gather(stream(), out, own); });
}

void DataGroups::gather_step_sums(device::Tensor out, device::ConstTensor own) {
  counted(&TrafficTable::step_sums, closing_.get(),
          [&](comm::Communicator& group) { group.all_gather(stream(), out, own); });
}

void DataGroups::gather_updates(device::Tensor out, device::ConstTensor own) {
  counted(&TrafficTable::updates, shards_,
          [&](comm::Communicator& group) { group.all_gather(stream(), out, own); });
}

void DataGroups::broadcast_update(device::Tensor inout, int from) {
  counted(&TrafficTable::updates, data_.get(),
          [&](comm::Communicator& group) { group.broadcast(stream(), inout, from); });
}

void DataGroups::max_state(device::Tensor inout) {
  if (!has_peers()) return;
  after_compute();
  counted(&TrafficTable::layer_state, data_.get(),
          [&](comm::Communicator& group) { group.all_reduce(stream(), inout, comm::Reduce::max); });
  before_compute();
}

void DataGroups::gather_grads_for_host(device::Tensor out, device::ConstTensor own) {
  counted(&TrafficTable::other, updates_all_ ? data_.get() : copies_,
          [&](comm::Communicator& group) { group.all_gather(stream(), out, own); });
}

void DataGroups::gather_for_host(device::Tensor out, device::ConstTensor own) {
  counted(&TrafficTable::other, shards_,
          [&](comm::Communicator& group) { group.all_gather(stream(), out, own); });
}

void DataGroups::set_received(device::Tensor buffer) {
  received_ = buffer;
  data_->set_buffer(buffer);
}

void DataGroups::counted(int64_t TrafficTable::*kind, comm::Communicator* group,
                         const std::function<void(comm::Communicator&)>& call) {
  TRIREME_CHECK(group != nullptr, "a collective without peers");
  const int64_t before = group->traffic().bytes;
  call(*group);
  traffic_.*kind += group->traffic().bytes - before;
}

}  // namespace trireme::engine
