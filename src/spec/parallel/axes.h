// SPDX-License-Identifier: Apache-2.0
// The axes of the mesh, their sizes, and a rank's place on them. The dense view of the ranks is
// [pp, dp, zero, cp, tp], the expert view [pp, edp, ezero, ep, etp] with edp * ezero * ep * etp =
// dp
// * zero * cp * tp; in both the last axis is the fastest. Models without experts have 1 along all
// expert axes, and then the expert view is not used.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme::spec {

enum class Axis : uint8_t { pp, dp, zero, cp, tp, edp, ezero, ep, etp, count };

std::string_view name_of(Axis);

template <int fallback>
struct PerAxis {
  std::array<int, static_cast<size_t>(Axis::count)> of = filled();

  int& operator[](Axis axis) { return of[static_cast<size_t>(axis)]; }
  int operator[](Axis axis) const { return of[static_cast<size_t>(axis)]; }
  bool operator==(const PerAxis&) const = default;

 private:
  static constexpr std::array<int, static_cast<size_t>(Axis::count)> filled() {
    std::array<int, static_cast<size_t>(Axis::count)> values{};
    values.fill(fallback);
    return values;
  }
};

using Sizes = PerAxis<1>;  // ranks along each axis
using Coord = PerAxis<0>;  // 0 <= coord[a] < sizes[a]

using AxisView = std::array<Axis, 5>;  // the last axis the fastest
constexpr AxisView dense_axes = {Axis::pp, Axis::dp, Axis::zero, Axis::cp, Axis::tp};
constexpr AxisView expert_axes = {Axis::pp, Axis::edp, Axis::ezero, Axis::ep, Axis::etp};

int64_t ranks_of(const Sizes&, const AxisView&);
// Is some expert axis longer than 1?
bool has_expert_axes(const Sizes&);
// Returns the rank's coordinates in both views. REQUIRES: 0 <= rank < product of the dense axes,
// and the expert axes have the same product, or are all 1.
Coord coord_of(const Sizes&, int rank);
// Returns the rank, by its coordinates in the dense view.
int rank_of(const Sizes&, const Coord&);

}  // namespace trireme::spec
