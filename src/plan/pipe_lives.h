// SPDX-License-Identifier: Apache-2.0
// What the ranks of a pipeline hold at one time, counted on the programs of the schedule that the
// engine runs: the live sets behind the pools of spec/stash_layout.h, in layers instead of bytes.
// One count serves all layouts with the same schedule and the same cut.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "plan/job.h"
#include "plan/stage_blocks.h"
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
// Sets none of which covers another: the largest one depends on the sizes of layers.
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
  // Of a rank that has one end of the model, micro-batches that the other end is ahead (PipeLives).
  int64_t ends_ahead = 0;
};

struct PipeLives {
  // Those among which is the rank that needs the most, whatever the sizes of layers.
  std::vector<RankLives> ranks;
  bool splits_ends = false;  // the first and the last stage are on different ranks
  // Micro-batches whose backward through the last stage can be over, or must be, before that of one
  // through the first stage is, without that one: spec::SplitTable::staged of reduce = each.
  int64_t ends_ahead = 0;
};

// After so many micro-batches nothing more piles up, except in GPipe.
int64_t settled_micro_batches(const Layout&, int64_t micro_batches);

// Remembers what it was asked for.
class PipeLivesTable {
 public:
  // REQUIRES: no rule of the layout is broken.
  const PipeLives& find(const Layout&, int64_t micro_batches, const StageBlocks&);
  // The layout's schedule with so many micro-batches, compute alone; good until the next call.
  const schedule::Schedule& written(const Layout&, int64_t micro_batches);

 private:
  using Shape = std::tuple<int64_t, int, int, Pipe>;  // micro-batches, pp, chunks

  std::map<std::tuple<Shape, double, double>, PipeLives> known_;
  // The one that was written down last: layouts that differ in their cut alone follow each other.
  Shape shape_{};
  std::optional<schedule::Schedule> schedule_;
};

}  // namespace trireme::plan
