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
using spec::Sizes;
using View = std::array<Axis, 5>;  // the last axis the fastest

constexpr View dense_view = {Axis::pp, Axis::dp, Axis::zero, Axis::cp, Axis::tp};
constexpr View expert_view = {Axis::pp, Axis::dp, Axis::ezero, Axis::ep, Axis::etp};

int64_t ranks_of(const Sizes& sizes, const View& view) {
  int64_t product = 1;
  for (const Axis axis : view) product *= sizes[axis];
  return product;
}

bool has_experts(const Sizes& sizes) {
  return sizes[Axis::ezero] * sizes[Axis::ep] * sizes[Axis::etp] > 1;
}

bool is_in(Axis axis, std::span<const Axis> axes) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// The view that all of `axes` belong to.
const View& view_of_axes(std::span<const Axis> axes) {
  const auto all_in = [&](const View& view) {
    return std::all_of(axes.begin(), axes.end(), [&](Axis axis) { return is_in(axis, view); });
  };
  if (all_in(dense_view)) return dense_view;
  TRIREME_CHECK(all_in(expert_view), "axes of the dense and of the expert view in one group");
  return expert_view;
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
  for (const View& view : {dense_view, expert_view}) {
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
  if (ranks_of(sizes, dense_view) != world) {
    return fmt::format("{} = {} ranks, but the world has {}", text_of(dense_view),
                       ranks_of(sizes, dense_view), world);
  }
  if (has_experts(sizes) && ranks_of(sizes, expert_view) != world) {
    return fmt::format("{} = {} ranks for experts, but the world has {}", text_of(expert_view),
                       ranks_of(sizes, expert_view), world);
  }
  return {};
}

Coord coord_of(const Sizes& sizes, int rank) {
  TRIREME_CHECK(rank >= 0 && rank < ranks_of(sizes, dense_view), "rank {} of {}", rank,
                ranks_of(sizes, dense_view));
  Coord coord;
  const auto place = [&](const View& view) {
    int rest = rank;
    for (size_t i = view.size(); i-- > 0;) {
      coord[view[i]] = rest % sizes[view[i]];
      rest /= sizes[view[i]];
    }
  };
  if (has_experts(sizes)) place(expert_view);
  place(dense_view);
  return coord;
}

std::vector<int> members(const Sizes& sizes, int rank, std::span<const Axis> axes) {
  // Without experts the expert axes have one rank each, in either view.
  const View& view = has_experts(sizes) ? view_of_axes(axes) : dense_view;
  const Coord own = coord_of(sizes, rank);
  std::vector<int> ranks;
  for (int other = 0; other < ranks_of(sizes, dense_view); ++other) {
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
  auto group = world_.split(ranks.front(), world_.rank(), std::move(options));
  return *groups_.emplace(std::pair(ranks, channel), std::move(group)).first->second;
}

Communicator& Mesh::along(Axis axis, Channel channel) {
  return along(std::span(&axis, 1), channel);
}

std::vector<Communicator*> Mesh::groups() {
  std::vector<Communicator*> all;
  for (const auto& [key, group] : groups_) all.push_back(group.get());
  return all;
}

}  // namespace trireme::comm
