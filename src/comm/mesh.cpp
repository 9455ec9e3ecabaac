// SPDX-License-Identifier: Apache-2.0
#include "comm/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/error.h"

namespace trireme::comm {
namespace {

using spec::Axis;
using spec::Coord;
using spec::dense_axes;
using spec::expert_axes;
using spec::Sizes;
using View = spec::AxisView;

bool is_in(Axis axis, std::span<const Axis> axes) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// The view that all of `axes` belong to.
const View& view_of_axes(std::span<const Axis> axes) {
  const auto all_in = [&](const View& view) {
    return std::all_of(axes.begin(), axes.end(), [&](Axis axis) { return is_in(axis, view); });
  };
  if (all_in(dense_axes)) return dense_axes;
  TRIREME_CHECK(all_in(expert_axes), "axes of the dense and of the expert view in one group");
  return expert_axes;
}

const char* name_of(Channel channel) {
  switch (channel) {
    case Channel::compute:
      return "";
    case Channel::data:
      return " data";
    case Channel::activations:
      return " activations";
    case Channel::gradients:
      return " gradients";
    case Channel::expert:
      return " expert";
    case Channel::expert_rows:
      return " expert rows";
  }
  return " unknown";
}

std::string group_name(std::span<const Axis> axes, Channel channel) {
  std::string name;
  for (const Axis axis : axes) {
    if (!name.empty()) name += '+';
    name += spec::name_of(axis);
  }
  return name + name_of(channel);
}

}  // namespace

std::string mesh_problem(const Sizes& sizes, int world) {
  for (const View& view : {dense_axes, expert_axes}) {
    for (const Axis axis : view) {
      if (sizes[axis] < 1)
        return fmt::format("{} = {}: an axis needs at least 1 rank", spec::name_of(axis),
                           sizes[axis]);
    }
  }
  const auto text_of = [&](const View& view) {
    std::string text;
    for (const Axis axis : view) {
      text += fmt::format("{}{} {}", text.empty() ? "" : " * ", spec::name_of(axis), sizes[axis]);
    }
    return text;
  };
  if (ranks_of(sizes, dense_axes) != world) {
    return fmt::format("{} = {} ranks, but the world has {}", text_of(dense_axes),
                       ranks_of(sizes, dense_axes), world);
  }
  if (has_expert_axes(sizes) && ranks_of(sizes, expert_axes) != world) {
    return fmt::format("{} = {} ranks for experts, but the world has {}", text_of(expert_axes),
                       ranks_of(sizes, expert_axes), world);
  }
  return {};
}

std::vector<int> members(const Sizes& sizes, int rank, std::span<const Axis> axes) {
  // Without experts the expert axes have one rank each, in either view.
  const View& view = has_expert_axes(sizes) ? view_of_axes(axes) : dense_axes;
  const Coord own = coord_of(sizes, rank);
  std::vector<int> ranks;
  for (int other = 0; other < ranks_of(sizes, dense_axes); ++other) {
    const Coord coord = coord_of(sizes, other);
    const bool is_member = std::all_of(view.begin(), view.end(), [&](Axis axis) {
      return is_in(axis, axes) || coord[axis] == own[axis];
    });
    if (is_member) ranks.push_back(other);
  }
  return ranks;
}

Mesh::Mesh(Communicator& world, const Sizes& sizes) : world_(world), sizes_(sizes) {
  const std::string problem = mesh_problem(sizes, world.size());
  if (!problem.empty()) throw base::ConfigError("mesh: " + problem);
  coord_ = coord_of(sizes, world.rank());
}

Communicator& Mesh::along(std::span<const Axis> axes, Channel channel) {
  const auto ranks = members(sizes_, world_.rank(), axes);
  if (const auto found = groups_.find({ranks, channel}); found != groups_.end()) {
    return *found->second;
  }
  // Whether two sets of axes have the same members depends only on the sizes, so either all ranks
  // split or none does.
  Communicator::Options options = world_.options();
  options.name = group_name(axes, channel);
  auto group = world_.subgroup(ranks, std::move(options));
  return *groups_.emplace(std::pair(ranks, channel), std::move(group)).first->second;
}

Communicator& Mesh::along(Axis axis, Channel channel) {
  return along(std::span(&axis, 1), channel);
}

void Mesh::close(End end) noexcept {
  for (const auto& [key, group] : groups_) group->close(end);
}

std::vector<Communicator*> Mesh::groups() {
  std::vector<Communicator*> all;
  for (const auto& [key, group] : groups_) all.push_back(group.get());
  return all;
}

}  // namespace trireme::comm
