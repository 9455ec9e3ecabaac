// SPDX-License-Identifier: Apache-2.0
#include "schedule/prefixes.h"

#include <utility>

namespace trireme::schedule {
namespace {

bool is_gradient(Op op) { return op == Op::SendDx || op == Op::RecvDy; }

std::tuple<int, int, bool> channel_of(int rank, const Action& action) {
  if (is_send(action.op)) return {rank, action.peer, is_gradient(action.op)};
  return {action.peer, rank, is_gradient(action.op)};
}

}  // namespace

Prefixes::Prefixes(const Schedule& schedule, int send_buffers)
    : schedule_(schedule),
      send_buffers_(send_buffers),
      message_(schedule.program.size()),
      needed_(schedule.program.size()) {
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    const std::vector<Action>& program = schedule.program[rank];
    message_[rank].assign(program.size(), -1);
    for (size_t i = 0; i < program.size(); ++i) {
      const Action& action = program[i];
      if (!is_send(action.op) && !is_receive(action.op)) continue;
      Ends& ends = channels_[channel_of(static_cast<int>(rank), action)];
      std::vector<int>& own = is_send(action.op) ? ends.sends : ends.receives;
      message_[rank][i] = static_cast<int>(own.size());
      own.push_back(static_cast<int>(i));
    }
  }
}

void Prefixes::need(int rank, int actions) {
  std::vector<std::pair<int, int>> asked = {{rank, actions}};
  while (!asked.empty()) {
    const auto [at, end] = asked.back();
    asked.pop_back();
    int& needed = needed_[static_cast<size_t>(at)];
    for (; needed < end; ++needed) {
      const auto i = static_cast<size_t>(needed);
      const Action& action = schedule_.program[static_cast<size_t>(at)][i];
      const int message = message_[static_cast<size_t>(at)][i];
      if (message < 0) continue;
      const Ends& ends = channels_[channel_of(at, action)];
      // A receive needs its send; a send needs a free buffer, hence an earlier receive.
      if (is_receive(action.op)) {
        asked.emplace_back(action.peer, ends.sends[static_cast<size_t>(message)] + 1);
      } else if (message >= send_buffers_) {
        const auto before = static_cast<size_t>(message - send_buffers_);
        asked.emplace_back(action.peer, ends.receives[before] + 1);
      }
    }
  }
}

}  // namespace trireme::schedule
