// SPDX-License-Identifier: Apache-2.0
// Retention: which checkpoints of a run are kept. Pure.
//
// Kept are, of the complete checkpoints that are not marked bad,
//   - the newest `latest`;
//   - the newest good one, and the newest that is older by `good_after` steps than that;
//   - those spaced over the age of the run (`every`);
//   - the one that the run has resumed from, until two newer ones exist;
// and of the bad ones the newest. A damaged one is kept while it is among the newest.
//
// Spaced by powers of two: the steps are cut into cells of w = 1, 2, 4, ... steps, and the first
// checkpoint of each of the last two cells is kept, of the last three while the run is shorter than
// 8 w. Whether a cell is among the last ones depends on the newest step alone, and a cell that no
// longer is never becomes one again: no checkpoint is missed that was removed before. With T the
// newest step and gaps of at most d steps between checkpoints,
//   - for every power of two w, d <= w <= T / 2, one is kept whose age is above w - d and below 2
//   w;
//   - if d <= T / 8, one is kept whose age is above T / 4 - d and at most T / 2.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>

#include "ckpt/marks/marks.h"

namespace trireme::ckpt {

struct Retention {
  static constexpr int64_t powers_of_two = -1;

  int64_t latest = 0;         // 0: all are kept
  int64_t every = 0;          // the first of every so many steps; 0: none; or powers_of_two
  int64_t good_after = 200;   // steps
  int64_t resumed_from = -1;  // step; -1: the run began
};

struct StoredGeneration {
  int64_t step = 0;
  bool is_complete = true;  // its files are there, with their sizes
  std::optional<Mark> mark;
};

// `all`: of a run, newest first. Returns the steps that are kept.
std::set<int64_t> kept_steps(std::span<const StoredGeneration> all, const Retention&);

// Returns how many checkpoints a run of `steps` steps keeps at most, if none is bad and no two are
// less than `gap` steps apart; -1: no bound.
int64_t max_kept(const Retention&, int64_t steps, int64_t gap);

}  // namespace trireme::ckpt
