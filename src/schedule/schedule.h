// SPDX-License-Identifier: Apache-2.0
// A pipeline schedule as data: for every rank along the pp axis, the ordered list of actions of one
// training step. Generators (one file each) write F, B, W or BW; passes add the rest; check()
// proves the result; engine, simulator and planner read it. Nothing here knows what a stage
// computes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trireme::schedule {

enum class Op : uint8_t {
  F,            // forward of one micro-batch through one stage
  B,            // input gradient
  W,            // weight gradient
  BW,           // both, layer by layer
  SendY,        // output to the next stage
  RecvX,        // input from the previous stage
  SendDx,       // input gradient to the previous stage
  RecvDy,       // output gradient from the next stage
  R,            // recompute the dropped slots of the whole stage early
  ReduceGrads,  // of one stage over the data axes, after its last W or BW
  SyncTied,     // sum the accumulators of tied weights
};

struct Action {
  Op op = Op::F;
  int16_t stage = 0;
  int16_t peer = -1;       // rank at the other end, for sends and receives
  int32_t microbatch = 0;  // -1 for ReduceGrads and SyncTied
  bool operator==(const Action&) const = default;
};

using Lane = std::vector<int>;  // lane[s]: the rank that runs stage s

struct Schedule {
  int ranks = 1;
  int microbatches = 1;
  std::vector<Lane> lanes;                   // micro-batch m takes lane m mod lanes.size()
  std::vector<std::vector<Action>> program;  // one list per rank
  bool operator==(const Schedule&) const = default;

  int stages() const { return lanes.empty() ? 0 : static_cast<int>(lanes.front().size()); }
  // The rank that runs `stage` for `microbatch`. REQUIRES: both exist.
  int rank_of(int stage, int microbatch) const {
    return lanes[static_cast<size_t>(microbatch) % lanes.size()][static_cast<size_t>(stage)];
  }
};

// ---- generators: one straight lane, stage s on rank s, backward merged (BW). REQUIRES: ranks,
// microbatches >= 1.
Schedule gpipe(int ranks, int microbatches);
Schedule one_f_one_b(int ranks, int microbatches);

// ---- passes, in this order
Schedule split_backward(Schedule);  // each BW becomes B and, directly after it, W
Schedule add_p2p(
    Schedule);  // SendY/RecvX, SendDx/RecvDy between neighbouring stages on different ranks
Schedule add_reduce(Schedule);  // ReduceGrads of each stage after its last W or BW
Schedule add_tied(Schedule);    // SyncTied at the end of every rank's program

// ---- proof
// Runs the program abstractly, with `send_buffers` sends that may be outstanding per channel (0: a
// send completes only with its receive), and proves: every micro-batch has F, then B, then W (or
// BW) exactly once on every stage of its lane, on the rank that the lane names; inputs are present;
// sends and receives pair up first-in first-out on the activation and on the gradient channel of
// each ordered rank pair; no deadlock; nothing left over; ReduceGrads comes after the last weight
// gradient of its stage. The reason of a "no" names rank, position and action.
base::Result<Schedule> check(Schedule, int send_buffers);

// ---- in-flight counts: how many micro-batches' slots of each lifetime are live at most, by rank,
// counted over all of the rank's stages.
struct InFlight {
  int f_to_b = 0;  // after F until B (or BW)
  int f_to_w = 0;  // after F until W (or BW)
  int b_to_w = 0;  // after B until W; with BW it is 1 while the action runs, one layer at a time
  bool operator==(const InFlight&) const = default;
};
std::vector<InFlight> in_flight(const Schedule&);

// ---- text: one line per rank, actions separated by blanks: "0F0 0F1 0BW0 0F2"; sends and receives
// carry their peer: "0SendY0>1 1RecvX0<0"; "0ReduceGrads 0SyncTied".
std::string to_text(const Schedule&);
std::string to_text(const Action&);
// The inverse of to_text(Schedule); lanes (the fewest that fit) and counts are found from the
// actions. A malformed text is a "no" that names line, column, found.
base::Result<Schedule> from_text(std::string_view);

}  // namespace trireme::schedule
