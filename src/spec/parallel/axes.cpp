// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/axes.h"

#include "base/check.h"

namespace trireme::spec {

std::string_view name_of(Axis axis) {
  constexpr std::array<std::string_view, static_cast<size_t>(Axis::count)> names = {
      "pp", "dp", "zero", "cp", "tp", "edp", "ezero", "ep", "etp"};
  const auto index = static_cast<size_t>(axis);
  TRIREME_CHECK(index < names.size(), "axis {}", index);
  return names[index];
}

int64_t ranks_of(const Sizes& sizes, const AxisView& view) {
  int64_t product = 1;
  for (const Axis axis : view) product *= sizes[axis];
  return product;
}

bool has_expert_axes(const Sizes& sizes) { return ranks_of(sizes, expert_axes) > sizes[Axis::pp]; }

Coord coord_of(const Sizes& sizes, int rank) {
  TRIREME_CHECK(rank >= 0 && rank < ranks_of(sizes, dense_axes), "rank {} of {}", rank,
                ranks_of(sizes, dense_axes));
  Coord coord;
  const auto place = [&](const AxisView& view) {
    int rest = rank;
    for (size_t i = view.size(); i-- > 0;) {
      coord[view[i]] = rest % sizes[view[i]];
      rest /= sizes[view[i]];
    }
  };
  if (has_expert_axes(sizes)) place(expert_axes);
  place(dense_axes);
  return coord;
}

int rank_of(const Sizes& sizes, const Coord& coord) {
  int rank = 0;
  for (const Axis axis : dense_axes) rank = rank * sizes[axis] + coord[axis];
  return rank;
}

}  // namespace trireme::spec
