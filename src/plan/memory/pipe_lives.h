// SPDX-License-Identifier: Apache-2.0
// PipeLivesTable counts the layers whose slots are live at the same time on the ranks of a
// pipeline: the live sets of the pools of spec/memory/stash_layout.h, in layers instead of bytes.
// It walks through the programs of the schedule that the engine runs. One count serves all layouts
// with the same schedule and the same cut.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "plan/job.h"
#include "plan/memory/stage_blocks.h"
#include "schedule/schedule.h"

namespace trireme::plan {

// Layers that are live at one time, counted once for each micro-batch.
struct LiveLayers {
  int64_t blocks = 0, heads = 0;
  int64_t other = 0;  // blocks of the second kind (block_kinds.h); `blocks` has the first
  int64_t inner = 0;  // layers that are not the first of their stage
  bool operator==(const LiveLayers&) const = default;

  bool covers(const LiveLayers& set) const {
    return blocks >= set.blocks && heads >= set.heads && other >= set.other && inner >= set.inner;
  }
};
// Sets of which none covers another; which one is the largest depends on the sizes of layers.
using LiveSets = std::vector<LiveLayers>;

struct RankLives {
  int rank = 0;
  // Layers of the rank; `other`: as in LiveLayers.
  int64_t blocks = 0, other = 0;
  std::vector<bool> is_other;  // by block, in order; empty: all blocks are equal
  bool has_embedding = false, has_head = false;
  int64_t stage_layers = 0;  // of its largest stage
  int64_t channels = 0;      // to other ranks
  bool is_merged = true;     // backward is never split into B and W
  bool runs_pairs = false;   // some F runs together with a backward
  LiveSets f_to_b, f_to_w;
  LiveSets b_to_w;                    // empty if backward is merged
  int64_t inputs = 0, gradients = 0;  // peaks of those that come from other stages
  int64_t ends_ahead = 0;             // lower bound of PipeLives::ends_ahead by this program
};

struct PipeLives {
  // For any sizes of layers, one of these ranks needs the most memory.
  std::vector<RankLives> ranks;
  bool splits_ends = false;  // the first and the last stage are on different ranks
  // The number of spec::SharedTable::staged_grads of plans with reduce = each: the number of
  // micro-batches by which the backward of the last stage may be, or must be, ahead of the first
  // stage's.
  int64_t ends_ahead = 0;
};

// Returns the number of micro-batches after which live sets no longer grow (except in GPipe), at
// most `micro_batches`.
int64_t settled_micro_batches(const Layout&, int64_t micro_batches);

// Computes PipeLives, and caches the results.
class PipeLivesTable {
 public:
  // REQUIRES: no rule of the layout is broken; all calls are for one model.
  const PipeLives& find(const Layout&, int64_t micro_batches, const StageBlocks&);
  // Returns the layout's schedule for this number of micro-batches, without messages. The reference
  // is valid until the next call.
  const schedule::Schedule& written(const Layout&, int64_t micro_batches);

 private:
  using Shape = std::tuple<int64_t, int, int, Kind>;  // micro-batches, pp, chunks

  // By shape and cut.
  using Key = std::tuple<Shape, double, double, std::vector<double>, std::vector<bool>>;
  std::map<Key, PipeLives> known_;
  // The last generated schedule: layouts that differ only in their cut follow each other.
  Shape shape_{};
  std::optional<schedule::Schedule> schedule_;
};

}  // namespace trireme::plan
