// SPDX-License-Identifier: Apache-2.0
// The passes: each rewrites every rank's program action by action. None reorders what is there.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "schedule/schedule.h"

namespace trireme::schedule {
namespace {

constexpr int nobody = -1;

int rank_before(const Schedule& schedule, const Action& action);
int rank_after(const Schedule& schedule, const Action& action);
bool is_backward(Op op);
bool is_weight_gradient(Op op);

}  // namespace

Schedule split_backward(Schedule schedule) {
  for (std::vector<Action>& program : schedule.program) {
    std::vector<Action> split;
    for (Action action : program) {
      if (action.op != Op::BW) {
        split.push_back(action);
        continue;
      }
      for (const Op half : {Op::B, Op::W}) {
        action.op = half;
        split.push_back(action);
      }
    }
    program = std::move(split);
  }
  return schedule;
}

// A receive stands directly before its consumer and a send directly after its producer, so where B
// and W are apart the input gradient leaves before the weight gradient is computed. Each ordered
// pair of ranks has one channel for activations and one for gradients.
Schedule add_p2p(Schedule schedule) {
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    std::vector<Action> with_p2p;
    for (const Action& action : schedule.program[rank]) {
      const auto exchange = [&](Op op, int peer) {
        if (peer == nobody || peer == static_cast<int>(rank)) return;
        with_p2p.push_back({op, action.stage, static_cast<int16_t>(peer), action.microbatch});
      };
      if (action.op == Op::F) exchange(Op::RecvX, rank_before(schedule, action));
      if (is_backward(action.op)) exchange(Op::RecvDy, rank_after(schedule, action));
      with_p2p.push_back(action);
      if (action.op == Op::F) exchange(Op::SendY, rank_after(schedule, action));
      if (is_backward(action.op)) exchange(Op::SendDx, rank_before(schedule, action));
    }
    schedule.program[rank] = std::move(with_p2p);
  }
  return schedule;
}

// Behind a SendDx that directly follows the last BW: another rank waits for it, and the reduction
// only for the end of the step.
Schedule add_reduce(Schedule schedule) {
  for (std::vector<Action>& program : schedule.program) {
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      const auto last = std::find_if(program.rbegin(), program.rend(), [&](const Action& action) {
        return action.stage == stage && is_weight_gradient(action.op);
      });
      if (last == program.rend()) continue;
      auto behind = last.base();
      if (behind != program.end() && behind->op == Op::SendDx && behind->stage == stage) ++behind;
      program.insert(behind, {Op::ReduceGrads, static_cast<int16_t>(stage), -1, -1});
    }
  }
  return schedule;
}

// Its stage is the first of the rank's.
Schedule add_tied(Schedule schedule) {
  for (std::vector<Action>& program : schedule.program) {
    TRIREME_CHECK(!program.empty(), "a rank without actions has no stage to sync");
    const int16_t stage = std::ranges::min_element(program, {}, &Action::stage)->stage;
    program.push_back({Op::SyncTied, stage, -1, -1});
  }
  return schedule;
}

namespace {

int rank_before(const Schedule& schedule, const Action& action) {
  return action.stage == 0 ? nobody : schedule.rank_of(action.stage - 1, action.microbatch);
}

int rank_after(const Schedule& schedule, const Action& action) {
  return action.stage + 1 == schedule.stages()
             ? nobody
             : schedule.rank_of(action.stage + 1, action.microbatch);
}

bool is_backward(Op op) { return op == Op::B || op == Op::BW; }
bool is_weight_gradient(Op op) { return op == Op::W || op == Op::BW; }

}  // namespace
}  // namespace trireme::schedule
