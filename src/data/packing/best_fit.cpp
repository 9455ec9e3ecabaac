// SPDX-License-Identifier: Apache-2.0
#include "data/packing/best_fit.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace trireme::data {

Packing best_fit(std::span<const int32_t> lengths, int64_t seq_len) {
  std::vector<int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  Packing packing{.sequence = std::vector<int32_t>(lengths.size())};
  std::set<std::pair<int64_t, int32_t>> open;  // room, sequence
  for (const int32_t piece : order) {
    const int64_t length = lengths[static_cast<size_t>(piece)];
    TRIREME_CHECK(length >= 1 && length <= seq_len, "a piece of {} for {}", length, seq_len);
    int64_t room = seq_len;
    int32_t sequence = packing.sequences;
    if (const auto found = open.lower_bound({length, 0}); found != open.end()) {
      std::tie(room, sequence) = *found;
      open.erase(found);
    } else {
      ++packing.sequences;
    }
    packing.sequence[static_cast<size_t>(piece)] = sequence;
    if (room > length) open.emplace(room - length, sequence);
  }
  return packing;
}

}  // namespace trireme::data
