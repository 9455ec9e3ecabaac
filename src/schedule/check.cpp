// SPDX-License-Identifier: Apache-2.0
// The proof: first every action must be on the rank of its lane, then follows an abstract run.
#include <algorithm>

#include "base/check.h"
#include "schedule/check_run.h"
#include "schedule/schedule.h"

namespace trireme::schedule {
namespace {

// The reason of a fault, if there is one.
std::optional<std::string> fault_of_shape(const Schedule& schedule);
std::optional<std::string> fault_of_place(const Schedule& schedule, size_t rank,
                                          const Action& action);
std::optional<std::string> fault_of_peer(const Schedule& schedule, size_t rank,
                                         const Action& action);
std::optional<std::string> fault_of_pair(const std::vector<Action>& program, size_t at);

}  // namespace

std::optional<Fault> find_fault(const Schedule& schedule, int send_buffers) {
  TRIREME_CHECK(send_buffers >= 0, "{} send buffers", send_buffers);
  if (const auto fault = fault_of_shape(schedule)) return Fault{-1, -1, *fault};
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    for (size_t at = 0; at < schedule.program[rank].size(); ++at) {
      const Action& action = schedule.program[rank][at];
      std::optional<std::string> fault = fault_of_place(schedule, rank, action);
      if (!fault) fault = fault_of_peer(schedule, rank, action);
      if (!fault) fault = fault_of_pair(schedule.program[rank], at);
      if (!fault) continue;
      return Fault{static_cast<int>(rank), static_cast<int64_t>(at),
                   located(schedule, rank, at) + ": " + *fault};
    }
  }
  return CheckRun(schedule, send_buffers).play();
}

base::Result<Schedule> check(Schedule schedule, int send_buffers) {
  if (const std::optional<Fault> fault = find_fault(schedule, send_buffers)) {
    return base::Result<Schedule>::no(fault->reason);
  }
  return schedule;
}

namespace {

bool is_of_step(Op op) { return op == Op::ReduceGrads || op == Op::SyncTied; }

std::optional<std::string> fault_of_shape(const Schedule& schedule) {
  if (schedule.ranks < 1 || schedule.microbatches < 1 || schedule.stages() < 1) {
    return fmt::format("{} ranks, {} micro-batches, {} stages: each must be at least 1",
                       schedule.ranks, schedule.microbatches, schedule.stages());
  }
  if (std::ssize(schedule.program) != schedule.ranks) {
    return fmt::format("{} programs for {} ranks", schedule.program.size(), schedule.ranks);
  }
  for (const Lane& lane : schedule.lanes) {
    if (std::ssize(lane) != schedule.stages()) {
      return fmt::format("lanes of {} and of {} stages", schedule.stages(), lane.size());
    }
    for (const int rank : lane) {
      if (rank < 0 || rank >= schedule.ranks) {
        return fmt::format("a lane names rank {} of {}", rank, schedule.ranks);
      }
    }
  }
  return {};
}

// Does the action belong to this rank?
std::optional<std::string> fault_of_place(const Schedule& schedule, size_t rank,
                                          const Action& action) {
  if (action.stage < 0 || action.stage >= schedule.stages()) {
    return fmt::format("stage {} of {}", action.stage, schedule.stages());
  }
  if (is_of_step(action.op)) {
    if (action.microbatch != -1) return fmt::format("has micro-batch {}", action.microbatch);
    const bool held = std::ranges::any_of(schedule.lanes, [&](const Lane& lane) {
      return lane[static_cast<size_t>(action.stage)] == static_cast<int>(rank);
    });
    if (!held) return fmt::format("no lane puts stage {} on rank {}", action.stage, rank);
    return {};
  }
  if (action.microbatch < 0 || action.microbatch >= schedule.microbatches) {
    return fmt::format("micro-batch {} of {}", action.microbatch, schedule.microbatches);
  }
  const int owner = schedule.rank_of(action.stage, action.microbatch);
  if (owner != static_cast<int>(rank)) {
    return fmt::format("the lane of micro-batch {} puts stage {} on rank {}", action.microbatch,
                       action.stage, owner);
  }
  return {};
}

// REQUIRES: fault_of_place() has found none.
std::optional<std::string> fault_of_peer(const Schedule& schedule, size_t rank,
                                         const Action& action) {
  if (!is_send(action.op) && !is_receive(action.op)) {
    if (action.peer != -1) return fmt::format("has a peer, {}", action.peer);
    return {};
  }
  const bool downstream = action.op == Op::SendY || action.op == Op::RecvDy;
  const int stage = action.stage + (downstream ? 1 : -1);
  if (stage < 0 || stage >= schedule.stages()) return "there is no stage at the other end";
  const int peer = schedule.rank_of(stage, action.microbatch);
  if (peer == static_cast<int>(rank)) return "the stage at the other end is on the same rank";
  if (peer != action.peer) return fmt::format("the stage at the other end is on rank {}", peer);
  return {};
}

std::optional<std::string> fault_of_pair(const std::vector<Action>& program, size_t at) {
  const Action& action = program[at];
  if (!action.with_next) return {};
  if (action.op != Op::F) return "only an F begins a pair";
  if (at + 1 == program.size()) return "the other action of the pair is missing";
  const Action& next = program[at + 1];
  if (next.op != Op::B && next.op != Op::BW) {
    return fmt::format("is paired with {}, which is neither B nor BW", to_text(next));
  }
  if (next.microbatch == action.microbatch) {
    return fmt::format("is paired with {} of the same micro-batch", to_text(next));
  }
  return {};
}

}  // namespace
}  // namespace trireme::schedule
