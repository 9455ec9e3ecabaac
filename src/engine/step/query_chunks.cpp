// SPDX-License-Identifier: Apache-2.0
#include "engine/step/query_chunks.h"

namespace trireme::engine {

std::vector<kernels::QueryChunk> chunks_of(const spec::KeyRanges& keys) {
  std::vector<kernels::QueryChunk> chunks;
  const auto rows = static_cast<int64_t>(keys.begin.size());
  const auto end = [&](int64_t row) { return keys.end[static_cast<size_t>(row)]; };
  const auto begin = [&](int64_t row) { return keys.begin[static_cast<size_t>(row)]; };
  for (int64_t first = 0; first < rows;) {
    const int64_t growth = first + 1 < rows ? end(first + 1) - end(first) : 0;
    int64_t next = first + 1;
    while (next < rows && begin(next) == begin(first) && end(next) - end(next - 1) == growth &&
           (growth == 0 || growth == 1)) {
      ++next;
    }
    chunks.push_back({.first_row = first,
                      .rows = next - first,
                      .first_key = begin(first),
                      .end_key = end(next - 1),
                      .causal = next - first > 1 && growth == 1});
    first = next;
  }
  return chunks;
}

}  // namespace trireme::engine
