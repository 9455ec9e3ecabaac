// SPDX-License-Identifier: Apache-2.0
#include "schedule/receives.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <utility>

namespace trireme::schedule {
namespace {

struct Channel {
  size_t from = 0, to = 0;
  Op receive = Op::RecvX;
  auto operator<=>(const Channel&) const = default;
};

Channel channel_of(size_t rank, const Action& action);

// Runs the programs of all ranks with at most one message on each channel.
class OneMessage {
 public:
  explicit OneMessage(Schedule& schedule)
      : schedule_(schedule), position_(schedule.program.size(), 0) {}
  void run() {
    do {
      advance();
    } while (move_a_receive_up(Op::SendY) || move_a_receive_up(Op::SendDx));
  }

 private:
  void advance();
  bool step(size_t rank);  // false: it waits
  // Moves up the receive of a rank that waits in a send. Returns false if no rank waits in a send,
  // or no rank receives it.
  bool move_a_receive_up(Op send);

  Schedule& schedule_;
  std::vector<size_t> position_;
  std::map<Channel, bool> is_full_;
};

}  // namespace

void receive_in_order(Schedule& schedule) {
  std::map<Channel, std::vector<std::pair<int, int>>> sent;  // (receiver's stage, micro-batch)
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    for (const Action& action : schedule.program[rank]) {
      const bool is_y = action.op == Op::SendY;
      if (!is_y && action.op != Op::SendDx) continue;
      sent[{rank, static_cast<size_t>(action.peer), is_y ? Op::RecvX : Op::RecvDy}].emplace_back(
          action.stage + (is_y ? 1 : -1), action.microbatch);
    }
  }
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    std::map<Channel, size_t> taken;  // how many messages have been received
    std::map<Channel, std::vector<std::pair<int, int>>> early;  // received before their consumer
    std::vector<Action> out;
    for (const Action& action : schedule.program[rank]) {
      if (action.op != Op::RecvX && action.op != Op::RecvDy) {
        out.push_back(action);
        continue;
      }
      const Channel channel{static_cast<size_t>(action.peer), rank, action.op};
      const std::pair<int, int> wanted{action.stage, action.microbatch};
      std::vector<std::pair<int, int>>& ahead = early[channel];
      if (const auto found = std::ranges::find(ahead, wanted); found != ahead.end()) {
        ahead.erase(found);
        continue;
      }
      const std::vector<std::pair<int, int>>& messages = sent[channel];
      size_t& next = taken[channel];
      while (next < messages.size()) {
        const auto [stage, microbatch] = messages[next++];
        out.push_back({action.op, static_cast<int16_t>(stage), action.peer, microbatch});
        if (messages[next - 1] == wanted) break;
        ahead.push_back(messages[next - 1]);
      }
    }
    schedule.program[rank] = std::move(out);
  }
}

void receive_without_deadlock(Schedule& schedule) { OneMessage(schedule).run(); }

namespace {

Channel channel_of(size_t rank, const Action& action) {
  const auto peer = static_cast<size_t>(action.peer);
  if (is_receive(action.op)) return {peer, rank, action.op};
  return {rank, peer, action.op == Op::SendY ? Op::RecvX : Op::RecvDy};
}

void OneMessage::advance() {
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < position_.size(); ++rank) {
      while (position_[rank] < schedule_.program[rank].size() && step(rank)) {
        ++position_[rank];
        moved = true;
      }
    }
  }
}

bool OneMessage::step(size_t rank) {
  const Action& action = schedule_.program[rank][position_[rank]];
  if (!is_send(action.op) && !is_receive(action.op)) return true;
  bool& is_full = is_full_[channel_of(rank, action)];
  if (is_full == is_send(action.op)) return false;
  is_full = !is_full;
  return true;
}

bool OneMessage::move_a_receive_up(Op send) {
  for (size_t rank = 0; rank < position_.size(); ++rank) {
    if (position_[rank] == schedule_.program[rank].size()) continue;
    const Action& action = schedule_.program[rank][position_[rank]];
    if (action.op != send) continue;
    const Channel channel = channel_of(rank, action);
    std::vector<Action>& program = schedule_.program[channel.to];
    const auto here = program.begin() + static_cast<std::ptrdiff_t>(position_[channel.to]);
    const auto next = std::find_if(here, program.end(), [&](const Action& other) {
      return other.op == channel.receive && other.peer == static_cast<int>(rank);
    });
    if (next == program.end()) continue;
    std::rotate(here, next, next + 1);
    return true;
  }
  return false;
}

}  // namespace
}  // namespace trireme::schedule
