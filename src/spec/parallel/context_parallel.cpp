// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/context_parallel.h"

namespace trireme::spec {

double context_balance(ContextSlices slices, int groups, int64_t seq_len) {
  const auto rows = static_cast<double>(seq_len);
  const double own = rows / groups, mean = rows * (rows + 1) / 2 / groups;
  // The last group has the last rows, or the last row of each stripe.
  if (slices == ContextSlices::contiguous) return own * (rows - own + (own + 1) / 2) / mean;
  if (slices == ContextSlices::striped) return groups * own * (own + 1) / 2 / mean;
  return 1;
}

int64_t context_unit(ContextSlices slices, int cp) {
  const bool has_pairs = slices == ContextSlices::zigzag || slices == ContextSlices::blocks;
  return (has_pairs ? 2 : 1) * int64_t{cp};
}

bool context_allows(ContextKind kind, ContextSlices slices) {
  return !has_ring(kind) || slices != ContextSlices::blocks;
}

}  // namespace trireme::spec
