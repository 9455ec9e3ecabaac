// SPDX-License-Identifier: Apache-2.0
// PipeLivesTable counts what the ranks of a pipeline hold at one time: the live sets behind the
// pools of spec/memory/stash_layout.h, in layers instead of bytes. It walks through the programs of the
// schedule that the engine runs. One count serves all layouts with the same schedule and the same
// cut.
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

// Layers of micro-batches that are live at one time.
struct LiveLayers {
  int64_t blocks = 0, heads = 0;
  int64_t inner = 0;  // layers that are not the first of their stage
  bool operator==(const LiveLayers&) const = default;

  bool covers(const LiveLayers& other) const {
    return blocks >= other.blocks && heads >= other.heads && inner >= other.inner;
  }
};
// No set covers another: which one is the largest depends on the sizes of layers.
using LiveSets = std::vector<LiveLayers>;

struct RankLives {
  int rank = 0;
  // Layers of the rank.
  int64_t blocks = 0;
  bool has_embedding = false, has_head = false;
  int64_t stage_layers = 0;  // of its largest stage
  int64_t channels = 0;      // to other stages
  bool is_merged = true;     // no B and W are apart
  bool runs_pairs = false;   // an F beside a backward
  LiveSets f_to_b, f_to_w;
  LiveSets b_to_w;                    // where they are apart
  int64_t inputs = 0, gradients = 0;  // that come from other stages
  int64_t ends_ahead = 0;             // as far as this rank's program shows it (PipeLives)
};

struct PipeLives {
  // Whatever the sizes of layers, one of these ranks needs the most.
  std::vector<RankLives> ranks;
  bool splits_ends = false;  // the first and the last stage are on different ranks
  // The number of spec::SharedTable::staged_grads of plans with reduce = each: how many micro-batches the last stage may
  // be, or must be, ahead of the first in its backward.
  int64_t ends_ahead = 0;
};

// Returns the number of micro-batches, or fewer, after which nothing more piles up, except in
// GPipe.
int64_t settled_micro_batches(const Layout&, int64_t micro_batches);

// Remembers what it was asked for.
class PipeLivesTable {
 public:
  // REQUIRES: no rule of the layout is broken.
  const PipeLives& find(const Layout&, int64_t micro_batches, const StageBlocks&);
  // Returns the layout's schedule for so many micro-batches, without messages. The reference is
  // valid until the next call.
  const schedule::Schedule& written(const Layout&, int64_t micro_batches);

 private:
  using Shape = std::tuple<int64_t, int, int, Kind>;  // micro-batches, pp, chunks

  std::map<std::tuple<Shape, double, double>, PipeLives> known_;
  // The last one that was generated: layouts that differ only in their cut follow each other.
  Shape shape_{};
  std::optional<schedule::Schedule> schedule_;
};

}  // namespace trireme::plan
