// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/mesh_view.h"

#include "base/check.h"

namespace trireme::spec {
namespace {

int product(std::span<const Axis> axes, const Sizes& sizes) {
  int ranks = 1;
  for (const Axis axis : axes) ranks *= sizes[axis];
  return ranks;
}

int place(std::span<const Axis> axes, const Sizes& sizes, const Coord& coord) {
  int index = 0;
  for (const Axis axis : axes) index = index * sizes[axis] + coord[axis];
  return index;
}

}  // namespace

int MeshView::shards(const Sizes& sizes) const { return product(shard, sizes); }
int MeshView::replicas(const Sizes& sizes) const { return product(replicate, sizes); }

int MeshView::shard_of(const Sizes& sizes, const Coord& coord) const {
  return place(shard, sizes, coord);
}

int MeshView::replica_of(const Sizes& sizes, const Coord& coord) const {
  return place(replicate, sizes, coord);
}

std::string_view name_of(ParamView view) { return view == ParamView::dense ? "dense" : "expert"; }

const MeshView& mesh_view(ParamView view) {
  static const std::array<MeshView, static_cast<size_t>(ParamView::count)> views = {{
      {.shard = {Axis::zero, Axis::cp}, .replicate = {Axis::dp}},
      {.shard = {Axis::ezero}, .replicate = {Axis::edp}},
  }};
  const auto index = static_cast<size_t>(view);
  TRIREME_CHECK(index < views.size(), "view {}", index);
  return views[index];
}

}  // namespace trireme::spec
