// SPDX-License-Identifier: Apache-2.0
// The passes except add_p2p.cpp: each rewrites every rank's program action by action. None reorders
// existing actions.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "schedule/schedule.h"

namespace trireme::schedule {
namespace {

bool is_backward(Op op);
bool is_weight_gradient(Op op);

template <typename Test>
bool has(const Schedule& schedule, const Test& test) {
  return std::ranges::any_of(schedule.program, [&test](const std::vector<Action>& program) {
    return std::ranges::any_of(program, test);
  });
}

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

bool has_messages(const Schedule& schedule) {
  return has(schedule, [](const Action& action) { return action.peer != -1; });
}

Schedule add_missing(Schedule schedule) {
  const auto has_op = [&schedule](Op op) {
    return has(schedule, [op](const Action& action) { return action.op == op; });
  };
  if (!has_messages(schedule)) schedule = add_p2p(std::move(schedule));
  if (!has_op(Op::ReduceGrads)) schedule = add_reduce(std::move(schedule));
  if (!has_op(Op::SyncTied)) schedule = add_tied(std::move(schedule));
  return schedule;
}

Schedule add_recompute(Schedule schedule, int ahead) {
  TRIREME_CHECK(ahead >= 0, "{} actions ahead", ahead);
  for (std::vector<Action>& program : schedule.program) {
    std::vector<std::vector<Action>> before(program.size());  // actions to insert before each one
    for (size_t at = 0; at < program.size(); ++at) {
      const Action& action = program[at];
      if (!is_backward(action.op)) continue;
      // Before the B or, if it ends a pair, before the pair; then up, over at most `ahead` actions.
      size_t place = at > 0 && program[at - 1].with_next ? at - 1 : at;
      size_t at_most = place;
      for (int steps = 0; steps < ahead && at_most > 0; ++steps) {
        const Action& earlier = program[at_most - 1];
        const bool is_own_f = earlier.op == Op::F && earlier.stage == action.stage &&
                              earlier.microbatch == action.microbatch;
        if (is_own_f) break;
        --at_most;
        const bool is_inside_pair = at_most > 0 && program[at_most - 1].with_next;
        if (!is_inside_pair) place = at_most;
      }
      before[place].push_back({Op::R, action.stage, -1, action.microbatch});
    }
    std::vector<Action> with_r;
    for (size_t at = 0; at < program.size(); ++at) {
      with_r.insert(with_r.end(), before[at].begin(), before[at].end());
      with_r.push_back(program[at]);
    }
    program = std::move(with_r);
  }
  return schedule;
}

// After the sends that directly follow the last W or BW: another rank waits for those, but only the
// end of the step for the reduction.
Schedule add_reduce(Schedule schedule) {
  for (std::vector<Action>& program : schedule.program) {
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      const auto last = std::find_if(program.rbegin(), program.rend(), [&](const Action& action) {
        return action.stage == stage && is_weight_gradient(action.op);
      });
      if (last == program.rend()) continue;
      auto behind = last.base();
      while (behind != program.end() && (behind->op == Op::SendDx || behind->op == Op::SendY)) {
        ++behind;
      }
      program.insert(behind, {Op::ReduceGrads, static_cast<int16_t>(stage), -1, -1});
    }
  }
  return schedule;
}

// SyncTied gets the first stage of the rank.
Schedule add_tied(Schedule schedule) {
  for (std::vector<Action>& program : schedule.program) {
    TRIREME_CHECK(!program.empty(), "a rank without actions has no stage to sync");
    const int16_t stage = std::ranges::min_element(program, {}, &Action::stage)->stage;
    program.push_back({Op::SyncTied, stage, -1, -1});
  }
  return schedule;
}

namespace {

bool is_backward(Op op) { return op == Op::B || op == Op::BW; }
bool is_weight_gradient(Op op) { return op == Op::W || op == Op::BW; }

}  // namespace
}  // namespace trireme::schedule
