// SPDX-License-Identifier: Apache-2.0
// The axes of the mesh, their sizes, and a rank's place on them. The dense view of the ranks is
// [pp, dp, zero, cp, tp], the expert view [pp, dp, ezero, ep, etp] with ezero * ep * etp = zero *
// cp * tp.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme::spec {

enum class Axis : uint8_t { pp, dp, zero, cp, tp, ezero, ep, etp, count };

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

}  // namespace trireme::spec
