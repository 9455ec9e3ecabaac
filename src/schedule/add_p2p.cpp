// SPDX-License-Identifier: Apache-2.0
// Adds messages. A receive is placed directly before its consumer (or before its pair), a send
// directly after its producer; receives.h then moves some receives up.
#include <cstdint>
#include <utility>

#include "schedule/receives.h"
#include "schedule/schedule.h"

namespace trireme::schedule {
namespace {

constexpr int no_receiver = -1;

// The receive before an action and the send after it; no value: none.
struct Exchange {
  std::optional<Action> receive, send;
};

Exchange exchange_of(const Schedule& schedule, size_t rank, const Action& action);
std::vector<Action> with_messages(const Schedule& schedule, size_t rank, SendDxWhen when);
bool is_weight_gradient_of(const Action& action, const Action& backward);

}  // namespace

Schedule add_p2p(Schedule schedule, SendDxWhen when) {
  std::vector<std::vector<Action>> programs;
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    programs.push_back(with_messages(schedule, rank, when));
  }
  schedule.program = std::move(programs);
  receive_in_order(schedule);
  receive_without_deadlock(schedule);
  return schedule;
}

namespace {

std::vector<Action> with_messages(const Schedule& schedule, size_t rank, SendDxWhen when) {
  const std::vector<Action>& program = schedule.program[rank];
  std::vector<Action> out;
  std::vector<Action> late;  // sends that wait for the end of a pair or for a W
  for (size_t at = 0; at < program.size(); ++at) {
    const Action& action = program[at];
    const bool is_second = at > 0 && program[at - 1].with_next;
    if (!is_second) {
      for (size_t i = at; i < program.size(); ++i) {
        const std::optional<Action> receive = exchange_of(schedule, rank, program[i]).receive;
        if (receive) out.push_back(*receive);
        if (!program[i].with_next) break;
      }
    }
    out.push_back(action);
    const std::optional<Action> send = exchange_of(schedule, rank, action).send;
    if (send) late.push_back(*send);
    const bool holds_back = when == SendDxWhen::after_w && action.op == Op::B &&
                            at + 1 < program.size() &&
                            is_weight_gradient_of(program[at + 1], action);
    if (action.with_next || holds_back) continue;
    out.insert(out.end(), late.begin(), late.end());
    late.clear();
  }
  return out;
}

Exchange exchange_of(const Schedule& schedule, size_t rank, const Action& action) {
  const bool is_f = action.op == Op::F;
  if (!is_f && action.op != Op::B && action.op != Op::BW) return {};
  const auto other_rank = [&](int stage) {
    if (stage < 0 || stage >= schedule.stages()) return no_receiver;
    const int other = schedule.rank_of(stage, action.microbatch);
    return other == static_cast<int>(rank) ? no_receiver : other;
  };
  const auto message = [&](Op op, int peer) -> std::optional<Action> {
    if (peer == no_receiver) return {};
    return Action{op, action.stage, static_cast<int16_t>(peer), action.microbatch};
  };
  const int before = other_rank(action.stage - 1), after = other_rank(action.stage + 1);
  return {.receive = is_f ? message(Op::RecvX, before) : message(Op::RecvDy, after),
          .send = is_f ? message(Op::SendY, after) : message(Op::SendDx, before)};
}

bool is_weight_gradient_of(const Action& action, const Action& backward) {
  return action.op == Op::W && action.stage == backward.stage &&
         action.microbatch == backward.microbatch;
}

}  // namespace
}  // namespace trireme::schedule
