// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/axes.h"

#include "base/check.h"

namespace trireme::spec {

std::string_view name_of(Axis axis) {
  constexpr std::array<std::string_view, static_cast<size_t>(Axis::count)> names = {
      "pp", "dp", "zero", "cp", "tp", "ezero", "ep", "etp"};
  const auto index = static_cast<size_t>(axis);
  TRIREME_CHECK(index < names.size(), "axis {}", index);
  return names[index];
}

}  // namespace trireme::spec
