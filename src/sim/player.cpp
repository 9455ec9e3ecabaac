// SPDX-License-Identifier: Apache-2.0
#include "sim/player.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::sim {

using schedule::Action;
using schedule::Op;

namespace {

const StageBytes nothing_kept;

}  // namespace

Player::Player(const schedule::Schedule& schedule, const Costs& costs, const Links& links,
               const Options& options)
    : schedule_(schedule),
      costs_(costs),
      options_(options),
      key_(base::rng_key(options.seed, "jitter")),
      wires_are_shared_(!links.wire_of.empty()) {
  const auto stages = static_cast<size_t>(schedule.stages());
  const size_t count = schedule.program.size();
  TRIREME_CHECK(costs.seconds.size() == stages && costs.output_bytes.size() == stages,
                "costs of {} and outputs of {} stages of {}", costs.seconds.size(),
                costs.output_bytes.size(), stages);
  TRIREME_CHECK(costs.kept.empty() || costs.kept.size() == stages, "memory of {} stages of {}",
                costs.kept.size(), stages);
  TRIREME_CHECK(options.slowdown.empty() || options.slowdown.size() == count,
                "slowdown of {} ranks of {}", options.slowdown.size(), count);
  TRIREME_CHECK(links.wire_of.empty() || links.wire_of.size() == count * count,
                "wires of {} pairs of {} ranks", links.wire_of.size(), count);
  ranks_.resize(count);
  make_channels();
  for (Channel& channel : channels_) {
    channel.wire = wires_are_shared_
                       ? static_cast<size_t>(links.wire_of[channel.from * count + channel.to])
                       : wires_.size();
    if (!wires_are_shared_) wires_.push_back({links.wires.at(0), 0});
  }
  if (wires_are_shared_) {
    for (const Link& link : links.wires) wires_.push_back({link, 0});
  }
  result_.ranks.resize(count);
  if (options.timeline) {
    result_.timeline.resize(count);
    result_.memory.resize(count);
    for (size_t rank = 0; rank < count; ++rank) {
      result_.timeline[rank].resize(schedule.program[rank].size());
    }
  }
}

Result Player::play() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) ready_.emplace(0.0, rank);
  while (!ready_.empty()) {
    const size_t rank = ready_.top().second;
    ready_.pop();
    run(rank);
  }
  double begin = 0, end = 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    TRIREME_CHECK(ranks_[rank].position == schedule_.program[rank].size(),
                  "rank {} hangs at {}: the schedule was not checked", rank,
                  to_text(schedule_.program[rank][ranks_[rank].position]));
    RankResult& of_rank = result_.ranks[rank];
    of_rank.end = ranks_[rank].clock;
    begin = rank == 0 ? of_rank.begin : std::min(begin, of_rank.begin);
    end = std::max(end, of_rank.end);
    result_.step_time = std::max(result_.step_time, of_rank.end - of_rank.begin);
    result_.actions += std::ssize(schedule_.program[rank]);
  }
  result_.makespan = end - begin;
  return std::move(result_);
}

void Player::make_channels() {
  for (size_t rank = 0; rank < schedule_.program.size(); ++rank) {
    for (const Action& action : schedule_.program[rank]) {
      if (!is_send(action.op)) continue;
      const Op receive = action.op == Op::SendY ? Op::RecvX : Op::RecvDy;
      const auto peer = static_cast<size_t>(action.peer);
      std::vector<size_t>& out = ranks_[rank].out;
      const bool is_known = std::ranges::any_of(out, [&](size_t id) {
        return channels_[id].to == peer && channels_[id].receive == receive;
      });
      if (is_known) continue;
      out.push_back(channels_.size());
      ranks_[peer].in.push_back(channels_.size());
      channels_.push_back({.from = rank, .to = peer, .receive = receive});
    }
  }
}

void Player::run(size_t rank) {
  const std::vector<Action>& program = schedule_.program[rank];
  Rank& self = ranks_[rank];
  while (self.position < program.size()) {
    const Action& action = program[self.position];
    if (is_send(action.op)) {
      if (wires_are_shared_ && !ready_.empty() && ready_.top().first < self.clock) {
        ready_.emplace(self.clock, rank);
        return;
      }
      if (!send(rank, action)) return;
    } else if (is_receive(action.op)) {
      if (!receive(rank, action)) return;
    } else if (action.with_next) {
      compute_pair(rank, action, program[self.position + 1]);
    } else {
      compute(rank, action);
    }
    ++self.position;
  }
}

void Player::wake(size_t rank) { ready_.emplace(ranks_[rank].clock, rank); }

bool Player::send(size_t rank, const Action& action) {
  const bool is_y = action.op == Op::SendY;
  Rank& self = ranks_[rank];
  Channel& channel =
      channels_[channel_of(self.out, action.peer, is_y ? Op::RecvX : Op::RecvDy, true)];
  const double begin = self.clock;
  const auto buffers = static_cast<size_t>(options_.send_buffers);
  if (buffers > 0 && channel.messages.size() >= buffers) {
    const size_t freed_by = channel.messages.size() - buffers;
    if (freed_by >= channel.received_at.size()) {
      channel.sender_waits = true;
      return false;
    }
    self.clock = std::max(self.clock, channel.received_at[freed_by]);
  }
  Wire& wire = wires_[channel.wire];
  const double bytes =
      costs_.output_bytes[static_cast<size_t>(is_y ? action.stage : action.stage - 1)];
  const double rate = wire.link.bytes_per_second;
  wire.free_at = std::max(wire.free_at, self.clock) + (rate > 0 ? bytes / rate : 0);
  channel.messages.push_back({self.clock, wire.free_at + wire.link.latency});
  if (options_.sends_block) {
    result_.ranks[rank].exposed += channel.messages.back().arrived - self.clock;
    self.clock = channel.messages.back().arrived;
  }
  record(rank, begin);
  if (channel.receiver_waits) {
    channel.receiver_waits = false;
    wake(channel.to);
  }
  return true;
}

bool Player::receive(size_t rank, const Action& action) {
  Rank& self = ranks_[rank];
  Channel& channel = channels_[channel_of(self.in, action.peer, action.op, false)];
  if (channel.received == channel.messages.size()) {
    channel.receiver_waits = true;
    return false;
  }
  const Message message = channel.messages[channel.received++];
  const double begin = self.clock;
  if (message.arrived > self.clock) {
    if (self.has_begun) {
      result_.ranks[rank].exposed += message.arrived - std::max(message.sent, self.clock);
    }
    self.clock = message.arrived;
  }
  record(rank, begin);
  if (options_.send_buffers > 0) channel.received_at.push_back(self.clock);
  if (channel.sender_waits) {
    channel.sender_waits = false;
    wake(channel.from);
  }
  return true;
}

void Player::compute(size_t rank, const Action& action) {
  const double begin = ranks_[rank].clock;
  keep(rank, at_begin(action));
  spend(rank, seconds_of(action));
  keep(rank, -at_end(action));
  record(rank, begin);
}

void Player::compute_pair(size_t rank, const Action& f, const Action& backward) {
  Rank& self = ranks_[rank];
  const double begin = self.clock;
  keep(rank, at_begin(f) + at_begin(backward));
  const StageSeconds& one = costs_.seconds[static_cast<size_t>(f.stage)];
  const StageSeconds& other = costs_.seconds[static_cast<size_t>(backward.stage)];
  spend(rank, (one.fb + other.fb) / 2 - (backward.op == Op::B ? other.w : 0));
  keep(rank, -at_end(backward));
  record(rank, begin);
  ++self.position;
  record(rank, begin);
}

void Player::spend(size_t rank, double seconds) {
  Rank& self = ranks_[rank];
  if (!self.has_begun) result_.ranks[rank].begin = self.clock;
  self.has_begun = true;
  if (!options_.slowdown.empty()) seconds *= options_.slowdown[rank];
  if (options_.jitter > 0) {
    const float deviation = base::rng_normal(key_, (uint64_t{rank} << 40) + self.position, 1.0F);
    seconds *= std::max(0.1, 1 + options_.jitter * static_cast<double>(deviation));
  }
  self.clock += seconds;
  result_.ranks[rank].busy += seconds;
}

void Player::keep(size_t rank, double bytes) {
  if (bytes == 0) return;
  Rank& self = ranks_[rank];
  self.kept += bytes;
  result_.ranks[rank].peak_bytes = std::max(result_.ranks[rank].peak_bytes, self.kept);
  if (!options_.timeline) return;
  std::vector<MemoryPoint>& points = result_.memory[rank];
  points.push_back({self.clock, self.kept});
}

void Player::record(size_t rank, double begin) {
  const Rank& self = ranks_[rank];
  if (options_.timeline) result_.timeline[rank][self.position] = {begin, self.clock};
}

double Player::at_begin(const Action& action) {
  const StageBytes& kept = kept_by(action);
  switch (action.op) {
    case Op::F:
      return kept.f_to_b + kept.f_to_w;
    case Op::B:
      return kept.b_to_w;
    case Op::R:
      if (recomputed_.empty()) {
        recomputed_.resize(static_cast<size_t>(schedule_.stages()) *
                           static_cast<size_t>(schedule_.microbatches));
      }
      recomputed_[static_cast<size_t>(action.microbatch) * static_cast<size_t>(schedule_.stages()) +
                  static_cast<size_t>(action.stage)] = true;
      return kept.r_to_w;
    default:
      return 0;
  }
}

double Player::at_end(const Action& action) {
  const StageBytes& kept = kept_by(action);
  const auto recomputed = [&] {
    const size_t at =
        static_cast<size_t>(action.microbatch) * static_cast<size_t>(schedule_.stages()) +
        static_cast<size_t>(action.stage);
    return !recomputed_.empty() && recomputed_[at] ? kept.r_to_w : 0;
  };
  switch (action.op) {
    case Op::B:
      return kept.f_to_b;
    case Op::W:
      return kept.f_to_w + kept.b_to_w + recomputed();
    case Op::BW:
      return kept.f_to_b + kept.f_to_w + recomputed();
    default:
      return 0;
  }
}

const StageBytes& Player::kept_by(const Action& action) const {
  return costs_.kept.empty() ? nothing_kept : costs_.kept[static_cast<size_t>(action.stage)];
}

double Player::seconds_of(const Action& action) const {
  const StageSeconds& seconds = costs_.seconds[static_cast<size_t>(action.stage)];
  switch (action.op) {
    case Op::F:
      return seconds.f;
    case Op::B:
      return seconds.b;
    case Op::W:
      return seconds.w;
    case Op::BW:
      return seconds.bw;
    case Op::R:
      return seconds.r;
    case Op::ReduceGrads:
      return seconds.reduce;
    case Op::SyncTied:
      return costs_.sync_tied;
    case Op::SendY:
    case Op::RecvX:
    case Op::SendDx:
    case Op::RecvDy:
      break;
  }
  TRIREME_CHECK(false, "{} computes nothing", to_text(action));
}

size_t Player::channel_of(const std::vector<size_t>& ids, int peer, Op receive, bool is_out) const {
  for (const size_t id : ids) {
    const Channel& channel = channels_[id];
    if (channel.receive == receive &&
        static_cast<int>(is_out ? channel.to : channel.from) == peer) {
      return id;
    }
  }
  TRIREME_CHECK(false, "no channel with rank {}: the schedule was not checked", peer);
}

}  // namespace trireme::sim
