// SPDX-License-Identifier: Apache-2.0
#include "engine/groups/data_groups.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "spec/parallel/sum_tree.h"

namespace trireme::engine {

using device::Wait;
using spec::Axis;
using spec::TrafficTable;

namespace {

std::string text_of(const spec::Sizes& sizes) {
  std::string text;
  const auto add = [&](Axis axis) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", spec::name_of(axis), sizes[axis]);
  };
  for (const Axis axis : spec::dense_axes) add(axis);
  if (!spec::has_expert_axes(sizes)) return text;
  for (const Axis axis : spec::expert_axes) {
    if (axis != Axis::pp) add(axis);
  }
  return text;
}

// Returns the ranks in the ascending order of place_of(sizes, coordinates).
template <typename PlaceOf>
std::vector<int> ordered(std::vector<int> ranks, const spec::Sizes& sizes,
                         const PlaceOf& place_of) {
  std::vector<std::pair<int, int>> places;
  for (const int rank : ranks) {
    places.emplace_back(place_of(sizes, spec::coord_of(sizes, rank)), rank);
  }
  std::ranges::sort(places);
  std::ranges::transform(places, ranks.begin(), &std::pair<int, int>::second);
  return ranks;
}

}  // namespace

DataGroups::DataGroups(const spec::Plan& plan, comm::Mesh* mesh, device::Device& device,
                       device::Stream& compute)
    : compute_(compute), updates_all_(!plan.zero.optim) {
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
    std::vector<int> all(static_cast<size_t>(world.size()));
    std::iota(all.begin(), all.end(), 0);
    closing_ = world.subgroup(ordered(std::move(all), plan.mesh, spec::closing_rank), options);
    closing_->set_wait(Wait::closing);
  }
  if (!spec::sums_with_peers(plan.mesh)) return;
  own_stream_ = device.make_stream("dp");
  for (const View view : {View::dense, View::expert}) make_groups(plan, *mesh, view);
}

void DataGroups::make_groups(const spec::Plan& plan, comm::Mesh& mesh, View view) {
  if (spec::sum_ranks(plan.mesh, view) == 1) return;
  comm::Communicator& world = mesh.world();
  comm::Communicator::Options options = world.options();
  options.name = view == View::dense ? "data" : "data of experts";
  const spec::MeshView& along = spec::mesh_view(view);
  std::vector<Axis> axes = along.replicate;
  axes.insert(axes.end(), along.shard.begin(), along.shard.end());
  Groups& groups = of(view);
  groups.data = world.subgroup(ordered(comm::members(plan.mesh, world.rank(), axes), plan.mesh,
                                       [view](const spec::Sizes& sizes, const spec::Coord& coord) {
                                         return spec::reduced_place(sizes, coord, view);
                                       }),
                               options);
  groups.data->set_wait(Wait::data);
  if (along.replicas(plan.mesh) > 1) {
    groups.copies = &mesh.along(along.replicate, comm::Channel::data);
  }
  if (along.shards(plan.mesh) > 1) groups.shards = &mesh.along(along.shard, comm::Channel::data);
  for (comm::Communicator* group : {groups.copies, groups.shards}) {
    if (group != nullptr) group->set_wait(Wait::data);
  }
  groups.order.leaves = spec::leaves(plan, view);
  for (const int member : groups.data->world_ranks()) {
    const spec::Range held = spec::leaves_of(plan, spec::coord_of(plan.mesh, member), view);
    groups.order.parts.push_back(spec::tree_cover(groups.order.leaves, held));
  }
}

device::Event DataGroups::mark(device::Stream& of) const {
  return own_stream_ ? of.record() : device::Event{};
}

void DataGroups::after_compute() {
  if (own_stream_) own_stream_->wait(compute_.record());
}

void DataGroups::before_compute(Wait wait) {
  if (own_stream_) device::wait_for(compute_, own_stream_->record(), wait);
}

void DataGroups::reduce(View view, device::Tensor out, std::span<const device::ConstTensor> parts) {
  TRIREME_CHECK(has_peers(view), "a sum without peers");
  counted(&TrafficTable::reduce_grads, of(view).data.get(), [&](comm::Communicator& group) {
    const int64_t before = group.traffic().network_bytes;
    group.reduce_scatter(stream(), out, parts, of(view).order);
    traffic_.reduce_network += group.traffic().network_bytes - before;
  });
}

void DataGroups::gather_grads(View view, device::Tensor out, device::ConstTensor own) {
  counted(&TrafficTable::gather_grads, updaters(view),
          [&](comm::Communicator& group) { group.all_gather(stream(), out, own); });
}

void DataGroups::gather_params(View view, device::Tensor out, device::ConstTensor own) {
  if (base::is_float8(own.dtype)) {  // communicators have no such type
    out = device::view_of(out.data, {out.shape, base::DType::u8});
    own.dtype = base::DType::u8;
  }
  counted(&TrafficTable::gather_params, of(view).shards,
          [&](comm::Communicator& group) { group.all_gather(stream(), out, own); });
}

void DataGroups::gather_records(device::Tensor out, device::ConstTensor own) {
  TRIREME_CHECK(closes_with_peers(), "records without peers");
  counted(&TrafficTable::step_sums, closing_.get(),
          [&](comm::Communicator& group) { group.all_gather(stream(), out, own); });
}

void DataGroups::gather_updates(device::Tensor out, device::ConstTensor own) {
  TRIREME_CHECK(dense().shards != nullptr, "a gather of updates without peers");
  counted(&TrafficTable::updates, dense().shards,
          [&](comm::Communicator& group) { group.all_gather(stream(), out, own); });
}

void DataGroups::broadcast_update(device::Tensor inout, int from) {
  TRIREME_CHECK(has_peers(View::dense), "a broadcast without peers");
  counted(&TrafficTable::updates, dense().data.get(),
          [&](comm::Communicator& group) { group.broadcast(stream(), inout, from); });
}

void DataGroups::reduce_state(device::Tensor inout, comm::Reduce how) {
  if (!has_peers(View::dense)) return;
  after_compute();
  counted(&TrafficTable::layer_state, dense().data.get(),
          [&](comm::Communicator& group) { group.all_reduce(stream(), inout, how); });
  before_compute();
}

void DataGroups::reduce_amax(View view, device::Tensor inout) {
  if (of(view).shards == nullptr) return;
  after_compute();
  counted(&TrafficTable::layer_state, of(view).data.get(),
          [&](comm::Communicator& group) { group.all_reduce(stream(), inout, comm::Reduce::max); });
  before_compute();
}

void DataGroups::gather_grads_for_host(View view, device::Tensor out, device::ConstTensor own) {
  counted(&TrafficTable::other, updaters(view),
          [&](comm::Communicator& group) { group.all_gather(stream(), out, own); });
}

void DataGroups::gather_for_host(View view, device::Tensor out, device::ConstTensor own) {
  TRIREME_CHECK(of(view).shards != nullptr, "a gather of shards without peers");
  counted(&TrafficTable::other, of(view).shards,
          [&](comm::Communicator& group) { group.all_gather(stream(), out, own); });
}

void DataGroups::close(comm::End end) noexcept {
  for (const Groups& groups : views_) {
    if (groups.data) groups.data->close(end);
  }
  if (closing_) closing_->close(end);
}

void DataGroups::set_received(device::Tensor buffer) {
  received_ = buffer;
  for (const Groups& groups : views_) {
    if (groups.data) groups.data->set_buffer(buffer);
  }
}

void DataGroups::counted(int64_t TrafficTable::*kind, comm::Communicator* group,
                         const std::function<void(comm::Communicator&)>& call) {
  if (group == nullptr) return;
  const int64_t before = group->traffic().bytes;
  call(*group);
  traffic_.*kind += group->traffic().bytes - before;
}

}  // namespace trireme::engine
