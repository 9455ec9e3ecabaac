// SPDX-License-Identifier: Apache-2.0
// Simulates a schedule with given costs and links: when every action begins and ends, which ranks
// wait, how much memory is in use. Nothing here depends on what a stage computes; the caller
// provides the costs (model_costs.h derives them from a model).
//
// Rules. A rank runs its program in order, one action at a time. A send takes the rank no time
// (unless Options::sends_block); its message leaves when the wire is free, occupies it for
// bytes / bandwidth and arrives one latency later. A receive blocks the rank until its message has
// arrived. An overlapped pair is one action with a separate cost. All times are in one unit,
// seconds or any other; so are all sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace trireme::sim {

// The times of one micro-batch on one stage.
struct StageSeconds {
  double f = 1, b = 1, w = 1;
  double bw = 2;      // merged
  double r = 0;       // early recompute
  double fb = 3;      // F overlapped with the BW of another micro-batch, both on this stage
  double reduce = 0;  // ReduceGrads
};
// The memory of one micro-batch on one stage, by lifetime. A merged backward needs its b_to_w slots
// for one layer at a time; they are not counted.
struct StageBytes {
  double f_to_b = 0, f_to_w = 0, b_to_w = 0;
  double r_to_w = 0;  // what an early R recomputes
};
struct Costs {
  std::vector<StageSeconds> seconds;  // by stage
  std::vector<StageBytes> kept;       // by stage; empty: memory is not counted
  std::vector<double> output_bytes;   // by stage: of its output, and of that output's gradient
  double sync_tied = 0;               // seconds
};
// Returns the same costs for every stage.
Costs uniform_costs(int stages, const StageSeconds&, const StageBytes&, double output_bytes);

struct Link {
  double latency = 0;           // seconds
  double bytes_per_second = 0;  // 0: unlimited
};
struct Links {
  std::vector<Link> wires = {{}};
  // wires[wire_of[from * ranks + to]] carries all messages from rank to rank, one at a time, first
  // come, first served. Empty: each channel has a separate wire like wires[0].
  std::vector<int> wire_of;
};
// Ranks in nodes of `ranks_per_node`: pairs inside a node have separate wires; all messages that
// leave a node share its one outgoing wire.
struct NodeLinks {
  int ranks = 1, ranks_per_node = 1;
  Link inside, between;
};
Links node_links(const NodeLinks&);

struct Options {
  int send_buffers = 0;          // of each channel; a send waits for a free one. 0: unlimited
  bool sends_block = false;      // a send blocks its rank until the message has arrived
  std::vector<double> slowdown;  // by rank: a factor on its compute time; empty: 1
  double jitter = 0;             // relative standard deviation of every compute action
  uint64_t seed = 0;
  bool timeline = false;  // record begin and end of every action, and memory over time
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
  // The time it waited for messages that were in flight or waiting for a wire, without the time
  // before they were sent.
  double exposed = 0;
  double peak_bytes = 0;
  bool operator==(const RankResult&) const = default;
};
struct Result {
  std::vector<RankResult> ranks;
  // The longest time from a rank's first action to its last: the period of steps if ranks do not
  // wait for each other between steps. Papers on pipelines use this definition.
  double step_time = 0;
  double makespan = 0;  // from the first action of all to the last of all
  int64_t actions = 0;
  std::vector<std::vector<Span>> timeline;       // by rank and action, if Options::timeline
  std::vector<std::vector<MemoryPoint>> memory;  // by rank, if Options::timeline

  // Returns the fraction of all ranks' time in a step in which they do not compute.
  double bubble_fraction() const;
  double bubble_of(size_t rank) const { return step_time - ranks[rank].busy; }
};
// REQUIRES: check() finds no fault with options.send_buffers (if 0, with some number). The result
// depends on the arguments only, including jitter.
Result simulate(const schedule::Schedule&, const Costs&, const Links&, const Options&);

}  // namespace trireme::sim
