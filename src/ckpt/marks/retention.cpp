// SPDX-License-Identifier: Apache-2.0
#include "ckpt/marks/retention.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "base/check.h"

namespace trireme::ckpt {
namespace {

// Keeps the first checkpoint of a cell of `width` steps; none may be in it.
void keep_first_of_cell(std::span<const int64_t> ascending, int64_t cell, int64_t width,
                        std::set<int64_t>& kept) {
  const auto first = std::ranges::lower_bound(ascending, cell * width);
  if (first != ascending.end() && *first / width == cell) kept.insert(*first);
}

// The last cells of every width. The first cell has no begin that a run could return to.
void keep_powers_of_two(std::span<const int64_t> ascending, std::set<int64_t>& kept) {
  const int64_t newest = ascending.back();
  for (int64_t width = 1; width <= newest; width *= 2) {
    const int64_t last = newest / width;
    const int64_t cells = last < 8 ? 3 : 2;
    for (int64_t cell = std::max<int64_t>(1, last - cells + 1); cell <= last; ++cell) {
      keep_first_of_cell(ascending, cell, width, kept);
    }
  }
}

void keep_spaced(std::span<const int64_t> ascending, int64_t every, std::set<int64_t>& kept) {
  if (ascending.empty() || every == 0) return;
  if (every == Retention::powers_of_two) return keep_powers_of_two(ascending, kept);
  for (const int64_t step : ascending) {
    if (step >= every) keep_first_of_cell(ascending, step / every, every, kept);
  }
}

// `usable`: steps of complete checkpoints that are not bad, newest first.
void keep_resumed_from(std::span<const int64_t> usable, int64_t step, std::set<int64_t>& kept) {
  constexpr size_t enough_newer = 2;
  const bool has_enough = usable.size() >= enough_newer && usable[enough_newer - 1] > step;
  if (!has_enough) kept.insert(step);
}

}  // namespace

std::set<int64_t> kept_steps(std::span<const StoredGeneration> all, const Retention& retention) {
  TRIREME_CHECK(std::ranges::is_sorted(all, std::ranges::greater(), &StoredGeneration::step),
                "{} checkpoints are not in the order of their steps", all.size());
  std::set<int64_t> kept;
  if (retention.latest == 0) {
    for (const StoredGeneration& one : all) kept.insert(one.step);
    return kept;
  }
  std::vector<int64_t> usable;
  std::optional<int64_t> newest_good, newest_bad;
  for (const StoredGeneration& one : all) {
    if (!one.is_complete) continue;
    if (one.mark == Mark::bad) {
      if (!newest_bad) newest_bad = one.step;
      continue;
    }
    usable.push_back(one.step);
    if (one.mark == Mark::good && !newest_good) newest_good = one.step;
  }
  if (newest_bad) kept.insert(*newest_bad);
  const auto latest = static_cast<size_t>(retention.latest);
  const int64_t oldest_latest = usable.size() < latest ? 0 : usable[latest - 1];
  for (const StoredGeneration& one : all) {
    const bool is_usable = !one.is_complete || one.mark != Mark::bad;
    if (is_usable && one.step >= oldest_latest) kept.insert(one.step);
  }
  if (newest_good) {
    kept.insert(*newest_good);
    const auto older = std::ranges::find_if(
        usable, [&](int64_t step) { return step <= *newest_good - retention.good_after; });
    if (older != usable.end()) kept.insert(*older);
  }
  keep_spaced(std::vector<int64_t>(usable.rbegin(), usable.rend()), retention.every, kept);
  if (std::ranges::find(usable, retention.resumed_from) != usable.end()) {
    keep_resumed_from(usable, retention.resumed_from, kept);
  }
  return kept;
}

int64_t max_kept(const Retention& retention, int64_t steps, int64_t gap) {
  if (retention.latest == 0) return -1;
  int64_t most = retention.latest;
  if (retention.latest < 2) ++most;  // the one resumed from
  if (steps > retention.good_after) ++most;
  if (steps > 2 * retention.good_after) ++most;  // one before the good one
  if (retention.every > 0) most += steps / retention.every;
  if (retention.every != Retention::powers_of_two) return most;
  // Two neighbouring cells begin with the same checkpoint as the cell of twice the width that they
  // form, so every width adds one at most; widths of at most half a gap add none but the newest.
  // Third cells of the three largest widths come on top.
  most += 3;
  for (int64_t width = 1; width <= steps; width *= 2) most += 2 * width > gap ? 1 : 0;
  return most;
}

}  // namespace trireme::ckpt
