// SPDX-License-Identifier: Apache-2.0
// Plays a schedule on costs and links: when every action begins and ends, who waits, what is kept.
// Nothing here knows what a stage computes; where costs come from is the caller's matter
// (model_costs.h reads them off a model).
//
// Rules. A rank runs its program in order, one action at a time. A send takes the rank no time
// (unless the options say otherwise); its message goes out when the wire is free, occupies it for
// bytes / bandwidth and is there a latency later. A receive holds the rank up until its message is
// there. An overlapped pair is one action with its own cost. All times are of one unit, seconds or
// any other; all sizes too.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace trireme::sim {

// Of one micro-batch on one stage.
struct StageSeconds {
  double f = 1, b = 1, w = 1;
  double bw = 2;      // merged
  double r = 0;       // early recompute
  double fb = 3;      // F overlapped with the BW of another micro-batch, both on this stage
  double reduce = 0;  // ReduceGrads
};
// What one micro-batch keeps on one stage, by lifetime. A merged backward needs its b_to_w slots
// for one layer at a time; they are not counted.
struct StageBytes {
  double f_to_b = 0, f_to_w = 0, b_to_w = 0;
  double r_to_w = 0;  // what an early R refills
};
struct Costs {
  std::vector<StageSeconds> seconds;  // by stage
  std::vector<StageBytes> kept;       // by stage; empty: nothing is counted
  std::vector<double> output_bytes;   // by stage: of its output, and of that output's gradient
  double sync_tied = 0;               // seconds
};
// The same for every stage.
Costs uniform_costs(int stages, const StageSeconds&, const StageBytes&, double output_bytes);

struct Link {
  double latency = 0;           // seconds
  double bytes_per_second = 0;  // 0: without limit
};
struct Links {
  std::vector<Link> wires = {{}};
  // wires[wire_of[from * ranks + to]] carries all messages from rank to rank, one at a time, first
  // come, first served. Empty: each channel has a wire of its own like wires[0].
  std::vector<int> wire_of;
};
// Ranks in nodes of `ranks_per_node`: pairs inside a node have wires of their own, all that leaves
// a node for another shares that node's one wire out.
struct NodeLinks {
  int ranks = 1, ranks_per_node = 1;
  Link inside, between;
};
Links node_links(const NodeLinks&);

struct Options {
  int send_buffers = 0;      // of each channel; a send waits for a free one. 0: as many as it takes
  bool sends_block = false;  // a send holds its rank until the message is there
  std::vector<double> slowdown;  // by rank: its compute takes so many times longer; empty: nobody's
  double jitter = 0;             // relative standard deviation of every compute action
  uint64_t seed = 0;
  bool timeline = false;  // keep begin and end of every action, and memory over time
};

struct Span {
  double begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};
struct MemoryPoint {
  double at = 0, bytes = 0;  // from then on
  bool operator==(const MemoryPoint&) const = default;
};
struct RankResult {
  double begin = 0, end = 0;  // of its first and its last action
  double busy = 0;            // computing
  // Of the time it held still for messages: where the message was under way or waiting for a wire,
  // not where it was not sent yet.
  double exposed = 0;
  double peak_bytes = 0;
  bool operator==(const RankResult&) const = default;
};
struct Result {
  std::vector<RankResult> ranks;
  // The longest time from a rank's first action to its last: steps follow each other at this pace
  // if ranks do not wait for each other between steps. The papers on pipelines mean this.
  double step_time = 0;
  double makespan = 0;  // from the first action of all to the last of all
  int64_t actions = 0;
  std::vector<std::vector<Span>> timeline;       // by rank and action, if asked for
  std::vector<std::vector<MemoryPoint>> memory;  // by rank, if asked for

  // Of all ranks' time in a step, the part in which they do not compute.
  double bubble_fraction() const;
  double bubble_of(size_t rank) const { return step_time - ranks[rank].busy; }
};
// REQUIRES: check() finds no fault with options.send_buffers (if 0, with some number). The result
// depends on the arguments alone, jitter included.
Result simulate(const schedule::Schedule&, const Costs&, const Links&, const Options&);

}  // namespace trireme::sim
