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

MeshView mesh_view(ParamView view) {
  TRIREME_CHECK(view < ParamView::count, "view {}", static_cast<int>(view));
  if (view == ParamView::expert) return {.shard = {Axis::ezero}, .replicate = {Axis::dp}};
  return {.shard = {Axis::zero, Axis::cp}, .replicate = {Axis::dp}};
}

}  // namespace trireme::spec
