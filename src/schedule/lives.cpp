// SPDX-License-Identifier: Apache-2.0
#include "schedule/lives.h"

#include <algorithm>
#include <map>
#include <utility>

namespace trireme::schedule {

std::vector<Passage> passages(const Schedule& schedule, int rank) {
  const std::vector<Action>& program = schedule.program[static_cast<size_t>(rank)];
  std::map<std::pair<int, int>, Passage> found;  // by stage and micro-batch
  const auto is_here = [&](int stage, int microbatch) {
    return stage >= 0 && stage < schedule.stages() && schedule.rank_of(stage, microbatch) == rank;
  };
  // Keeps the first value.
  const auto open = [&](int stage, int microbatch, int at) -> Passage& {
    return found.try_emplace({stage, microbatch}, Passage{stage, microbatch, at, -1, -1, -1, -1})
        .first->second;
  };
  const auto gradient_comes = [](Passage& passage, int at) {
    if (passage.gradient < 0) passage.gradient = at;
  };
  for (int at = 0; at < static_cast<int>(program.size()); ++at) {
    const Action& action = program[static_cast<size_t>(at)];
    if (action.op == Op::ReduceGrads || action.op == Op::SyncTied) continue;
    Passage& own = open(action.stage, action.microbatch, at);
    if (action.op == Op::F) own.f = at;
    if (action.op == Op::F && is_here(action.stage + 1, action.microbatch)) {
      open(action.stage + 1, action.microbatch, at);
    }
    if (action.op == Op::RecvDy) gradient_comes(own, at);
    if (action.op == Op::B || action.op == Op::BW) {
      own.b = at;
      gradient_comes(own, at);
      if (is_here(action.stage - 1, action.microbatch)) {
        gradient_comes(open(action.stage - 1, action.microbatch, at), at);
      }
    }
    if (action.op == Op::W || action.op == Op::BW) own.w = at;
  }
  std::vector<Passage> all;
  for (const auto& [key, passage] : found) all.push_back(passage);
  std::stable_sort(all.begin(), all.end(),
                   [](const Passage& a, const Passage& b) { return a.begin < b.begin; });
  return all;
}

std::vector<int> stages_of(const Schedule& schedule, int rank) {
  std::vector<int> stages;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const bool is_here =
        std::any_of(schedule.lanes.begin(), schedule.lanes.end(),
                    [&](const Lane& lane) { return lane[static_cast<size_t>(stage)] == rank; });
    if (is_here) stages.push_back(stage);
  }
  return stages;
}

bool splits_backward(const std::vector<Action>& program) {
  return std::any_of(program.begin(), program.end(),
                     [](const Action& action) { return action.op == Op::B; });
}

bool has_pairs(const std::vector<Action>& program) {
  return std::any_of(program.begin(), program.end(),
                     [](const Action& action) { return action.with_next; });
}

}  // namespace trireme::schedule
