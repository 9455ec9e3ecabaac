// SPDX-License-Identifier: Apache-2.0
// A pipeline schedule as data: for every rank along the pp axis, the ordered list of actions of one
// training step. Generators (one file each) write F, B, W or BW; passes add the rest; check()
// proves the result; engine, simulator and planner read it. Nothing here depends on what a stage
// computes.
#pragma once

#include <cstdint>
#include <optional>
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
  ReduceGrads,  // sum the gradients of one stage over the data axes, after its last W or BW
  SyncTied,     // sum the accumulators of tied weights
};

std::string_view name_of(Op);  // "F", "SendY"

constexpr bool is_send(Op op) { return op == Op::SendY || op == Op::SendDx; }
constexpr bool is_receive(Op op) { return op == Op::RecvX || op == Op::RecvDy; }

struct Action {
  Op op = Op::F;
  int16_t stage = 0;
  int16_t peer = -1;       // rank at the other end, for sends and receives
  int32_t microbatch = 0;  // -1 for ReduceGrads and SyncTied
  // On an F: it forms a pair with the B or BW of another micro-batch that directly follows it. The
  // two run as one action, their phases in alternation (DualPipe's overlap). Both need their inputs
  // before the pair begins, and their sends follow the pair.
  bool with_next = false;
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

// ---- generators: compute only (F, B, W, BW), before any pass. Straight lane: stage s on rank s;
// looping: stage s on rank s mod ranks; V: down the ranks and up again. REQUIRES, for each: ranks,
// microbatches, chunks >= 1, and the shapes that refusal() of catalogue.h accepts.
// docs/schedules.md lists bubbles and memory of each.
Schedule gpipe(int ranks, int microbatches);                    // straight, BW
Schedule one_f_one_b(int ranks, int microbatches);              // straight, BW
Schedule interleaved(int ranks, int microbatches, int chunks);  // looping, BW
Schedule zb_h1(int ranks, int microbatches);                    // straight, B and W
Schedule zb_h2(int ranks, int microbatches);                    // straight, B and W
Schedule zb_v(int ranks, int microbatches);                     // V, B and W
Schedule dualpipe(int ranks, int microbatches);                 // two opposite lanes, pairs
Schedule dualpipe_v(int ranks, int microbatches);               // V, pairs

// Parameters of the general generator, which finds an order by simulating forward in time, for any
// lanes and costs, under a cap on the memory of a rank. It is for shapes that no named schedule
// fits; a named schedule that fits is better.
struct CapOptions {
  int microbatches = 1;
  std::vector<Lane> lanes;
  std::vector<double> f, b, w;  // seconds by stage
  std::vector<double> kept;     // by stage: memory of one micro-batch from F to W
  double message_seconds = 0;   // from the end of an action to its input on another rank
  double cap = 0;               // on the memory of a rank; 0: none
};
// A "no" names the smallest cap for which an order exists.
base::Result<Schedule> capped(const CapOptions&);

// ---- passes, in this order. Each keeps the order of existing actions and never separates a pair.
Schedule split_backward(Schedule);  // each BW becomes B and, directly after it, W
// Inserts R before each B or BW, earlier by `ahead` of the rank's F, B and W, but after its F. At 0
// a rank recomputes while it would otherwise wait for the output gradient.
Schedule add_recompute(Schedule, int ahead = 0);
// When the input gradient is sent: directly after its B, or, if the W of the same micro-batch
// directly follows the B, after that W. With BW there is no choice.
enum class SendDxWhen : uint8_t { before_w, after_w };
// Adds SendY/RecvX and SendDx/RecvDy between adjacent stages on different ranks.
Schedule add_p2p(Schedule, SendDxWhen = SendDxWhen::before_w);
Schedule add_reduce(Schedule);  // ReduceGrads of each stage after its last W or BW
Schedule add_tied(Schedule);    // SyncTied at the end of every rank's program
// Adds messages, ReduceGrads or SyncTied if the schedule has none of that kind; hand-written
// schedules may omit them.
Schedule add_missing(Schedule);
bool has_messages(const Schedule&);

// ---- proof
struct Fault {
  int rank = -1;          // -1: the fault concerns no single rank
  int64_t position = -1;  // in the rank's program; its size: at the end
  std::string reason;     // also names rank, position and action
};
// Runs the program abstractly, with `send_buffers` sends that may be outstanding per channel (0: a
// send completes only with its receive), and proves: every micro-batch has F, then B, then W (or
// BW) exactly once on every stage of its lane, on the rank of the lane, so that all memory of F, B
// and R is released; inputs are present; pairs are an F and a backward of two micro-batches; sends
// and receives match first-in first-out on the activation and on the gradient channel of each
// ordered rank pair; no deadlock; no message is left over; ReduceGrads comes after the last weight
// gradient of its stage. Returns one of several faults.
std::optional<Fault> find_fault(const Schedule&, int send_buffers);
// Returns the schedule, or the fault's reason.
base::Result<Schedule> check(Schedule, int send_buffers);

// ---- in-flight counts: the maximum number of micro-batches whose slots of each lifetime are live,
// by rank, counted over all of the rank's stages.
struct InFlight {
  int f_to_b = 0;  // from F until B (or BW); an input that arrives before its F is not counted
  int f_to_w = 0;  // the same until W (or BW)
  int b_to_w = 0;  // after B until W; with BW it is 1 while the action runs, one layer at a time
  bool operator==(const InFlight&) const = default;
};
std::vector<InFlight> in_flight(const Schedule&);

// ---- text: one line per rank, actions separated by blanks: "0F0 0F1 0BW0 0F2"; sends and receives
// name their peer: "0SendY0>1 1RecvX0<0"; "0ReduceGrads 0SyncTied"; a pair is joined: "0F4&0BW1".
std::string to_text(const Schedule&);
std::string to_text(const Action&);
// The inverse of to_text(Schedule); lanes (one or two) and counts are derived from the actions. For
// a malformed text returns a "no" with line, column and the text found there.
base::Result<Schedule> from_text(std::string_view);

}  // namespace trireme::schedule
