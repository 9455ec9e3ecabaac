// SPDX-License-Identifier: Apache-2.0
#include "spec/facts/comm_cost.h"

#include <array>

namespace trireme::spec {

std::string_view name_of(CommKind kind) {
  constexpr std::array<std::string_view, static_cast<size_t>(CommKind::count)> names = {
      "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "shift"};
  return names[static_cast<size_t>(kind)];
}

int64_t sent_bytes(const CommCost& cost, int ranks) {
  const int64_t others = ranks - 1, size = base::size_of(cost.dtype);
  const int64_t share = cost.elements / ranks;
  if (cost.kind == CommKind::shift) return others > 0 ? cost.elements * size : 0;
  if (cost.kind != CommKind::all_reduce) return others * share * size;
  if (cost.elements < small_all_reduce_elements) return others * cost.elements * size;
  const int64_t rest = cost.elements - share * ranks;
  return others * (2 * share + rest) * size;
}

int64_t sent_bytes(const std::vector<CommCost>& costs, Axis axis, const Sizes& sizes) {
  int64_t bytes = 0;
  for (const CommCost& cost : costs) {
    if (cost.axis != axis) continue;
    bytes += sent_bytes(cost, cost.ranks > 0 ? cost.ranks : sizes[axis]);
  }
  return bytes;
}

}  // namespace trireme::spec
