// SPDX-License-Identifier: Apache-2.0
#include "schedule/check_run.h"

#include "base/check.h"

namespace trireme::schedule {

std::string located(const Schedule& schedule, size_t rank, size_t position) {
  return fmt::format("rank {}, action {} ({})", rank, position,
                     to_text(schedule.program[rank][position]));
}

CheckRun::CheckRun(const Schedule& schedule, int send_buffers)
    : schedule_(schedule),
      send_buffers_(static_cast<size_t>(send_buffers)),
      position_(schedule.program.size(), 0),
      posted_(schedule.program.size(), false),
      done_(static_cast<size_t>(schedule.stages()) * static_cast<size_t>(schedule.microbatches)) {}

std::optional<Fault> CheckRun::play() {
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < position_.size(); ++rank) {
      Outcome outcome = Outcome::next;
      while (outcome == Outcome::next && position_[rank] < schedule_.program[rank].size()) {
        outcome = step(rank);
        if (fault_) return fault_;
        if (outcome == Outcome::next) ++position_[rank];
        moved = moved || outcome != Outcome::waits;
      }
    }
  }
  if (const std::optional<Fault> fault = deadlock()) return fault;
  if (const std::optional<Fault> fault = left_over()) return fault;
  return incomplete();
}

CheckRun::Outcome CheckRun::step(size_t rank) {
  const Action& action = schedule_.program[rank][position_[rank]];
  switch (action.op) {
    case Op::F:
      return forward(rank, action);
    case Op::B:
    case Op::BW:
      return backward(rank, action);
    case Op::W: {
      Done& here = done(action.stage, action.microbatch);
      expect(here.b, rank, "its B has not run");
      expect(!here.w, rank, "runs a second time");
      here.w = true;
      return Outcome::next;
    }
    case Op::R: {
      Done& here = done(action.stage, action.microbatch);
      expect(here.f && !here.b && !here.r, rank, "belongs once between F and B");
      here.r = true;
      return Outcome::next;
    }
    case Op::SendY:
    case Op::SendDx:
      return send(rank, action);
    case Op::RecvX:
    case Op::RecvDy:
      return receive(rank, action);
    case Op::ReduceGrads:
      return reduce(rank, action);
    case Op::SyncTied:
      return expect(position_[rank] + 1 == schedule_.program[rank].size(), rank,
                    "is not the last action of its rank");
  }
  TRIREME_CHECK(false, "operation {}", static_cast<int>(action.op));
}

CheckRun::Outcome CheckRun::forward(size_t rank, const Action& action) {
  Done& here = done(action.stage, action.microbatch);
  expect(!here.f, rank, "runs a second time");
  here.f = true;
  if (action.stage == 0) return Outcome::next;
  const int before = action.stage - 1;
  const bool same_rank = schedule_.rank_of(before, action.microbatch) == static_cast<int>(rank);
  return expect(same_rank ? done(before, action.microbatch).f : here.received_x, rank,
                same_rank ? "F of the stage before has not run" : "its input was not received");
}

CheckRun::Outcome CheckRun::backward(size_t rank, const Action& action) {
  Done& here = done(action.stage, action.microbatch);
  expect(here.f, rank, "its F has not run");
  expect(!here.b, rank, "runs a second time");
  here.b = true;
  here.w = here.w || action.op == Op::BW;
  const int after = action.stage + 1;
  if (after == schedule_.stages()) return Outcome::next;
  const bool same_rank = schedule_.rank_of(after, action.microbatch) == static_cast<int>(rank);
  return expect(
      same_rank ? done(after, action.microbatch).b : here.received_dy, rank,
      same_rank ? "B of the stage after has not run" : "its output gradient was not received");
}

CheckRun::Outcome CheckRun::send(size_t rank, const Action& action) {
  if (posted_[rank]) return Outcome::waits;
  const bool is_y = action.op == Op::SendY;
  const Channel key{rank, static_cast<size_t>(action.peer),
                    is_y ? Kind::activations : Kind::gradients};
  std::deque<Message>& channel = channels_[key];
  if (send_buffers_ > 0 && channel.size() == send_buffers_) return Outcome::waits;
  Done& here = done(action.stage, action.microbatch);
  expect(is_y ? here.f : here.b, rank, "what it sends is not computed yet");
  bool& sent = is_y ? here.sent_y : here.sent_dx;
  expect(!sent, rank, "sends a second time");
  sent = true;
  channel.push_back({action.stage, action.microbatch, position_[rank]});
  if (send_buffers_ > 0) return Outcome::next;
  posted_[rank] = true;
  return Outcome::posted;
}

CheckRun::Outcome CheckRun::receive(size_t rank, const Action& action) {
  const bool is_x = action.op == Op::RecvX;
  const Channel key{static_cast<size_t>(action.peer), rank,
                    is_x ? Kind::activations : Kind::gradients};
  std::deque<Message>& channel = channels_[key];
  if (channel.empty()) return Outcome::waits;
  const Message message = channel.front();
  channel.pop_front();
  const int sender_stage = action.stage + (is_x ? -1 : 1);
  if (message.stage != sender_stage || message.microbatch != action.microbatch) {
    return expect(false, rank,
                  fmt::format("not first-in first-out: the channel brings {} next",
                              located(schedule_, key.from, message.position)));
  }
  if (send_buffers_ == 0) {  // the rendezvous is complete: the sender proceeds, too
    posted_[key.from] = false;
    ++position_[key.from];
  }
  Done& here = done(action.stage, action.microbatch);
  (is_x ? here.received_x : here.received_dy) = true;
  return Outcome::next;
}

CheckRun::Outcome CheckRun::reduce(size_t rank, const Action& action) {
  expect(gradients_ready(rank, action.stage), rank,
         "comes before the last weight gradient of its stage");
  bool& reduced = reduced_[{rank, action.stage}];
  expect(!reduced, rank, "reduces a second time");
  reduced = true;
  return Outcome::next;
}

CheckRun::Outcome CheckRun::expect(bool condition, size_t rank, std::string_view what) {
  if (!condition && !fault_) {
    fault_ = Fault{static_cast<int>(rank), static_cast<int64_t>(position_[rank]),
                   fmt::format("{}: {}", located(schedule_, rank, position_[rank]), what)};
  }
  return Outcome::next;
}

std::optional<Fault> CheckRun::deadlock() const {
  std::string text;
  std::optional<Fault> fault;
  for (size_t rank = 0; rank < position_.size(); ++rank) {
    if (position_[rank] == schedule_.program[rank].size()) continue;
    const auto peer = static_cast<size_t>(schedule_.program[rank][position_[rank]].peer);
    const bool peer_ended = position_[peer] == schedule_.program[peer].size();
    if (!fault) fault = Fault{static_cast<int>(rank), static_cast<int64_t>(position_[rank]), ""};
    text += fmt::format("{}{} waits for rank {}{}", text.empty() ? "" : "; ",
                        located(schedule_, rank, position_[rank]), peer,
                        peer_ended ? ", which has ended" : "");
  }
  if (fault) fault->reason = fmt::format("deadlock with {} send buffers: {}", send_buffers_, text);
  return fault;
}

std::optional<Fault> CheckRun::left_over() const {
  for (const auto& [key, messages] : channels_) {
    if (messages.empty()) continue;
    return Fault{static_cast<int>(key.from), static_cast<int64_t>(messages.front().position),
                 fmt::format("{}: left over, rank {} never receives it",
                             located(schedule_, key.from, messages.front().position), key.to)};
  }
  return {};
}

std::optional<Fault> CheckRun::incomplete() const {
  for (int m = 0; m < schedule_.microbatches; ++m) {
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      const Done& here = done(stage, m);
      if (here.w) continue;
      const char* missing = !here.f ? "F" : !here.b ? "B" : "W";
      return at_end(static_cast<size_t>(schedule_.rank_of(stage, m)),
                    fmt::format("micro-batch {} has no {} on stage {}", m, missing, stage));
    }
  }
  // Either all ranks reduce and sync or, in a program before those passes, none does.
  size_t synced = 0;
  for (const std::vector<Action>& program : schedule_.program) {
    synced += !program.empty() && program.back().op == Op::SyncTied ? 1 : 0;
  }
  for (size_t rank = 0; rank < schedule_.program.size(); ++rank) {
    const std::vector<Action>& program = schedule_.program[rank];
    for (const Action& action : program) {
      const bool adds_up = action.op == Op::W || action.op == Op::BW;
      if (!adds_up || reduced_.empty() || reduced_.contains({rank, action.stage})) continue;
      return at_end(rank, fmt::format("{}ReduceGrads is missing", action.stage));
    }
    if (synced > 0 && (program.empty() || program.back().op != Op::SyncTied)) {
      return at_end(rank, "SyncTied is missing");
    }
  }
  return {};
}

Fault CheckRun::at_end(size_t rank, std::string_view what) const {
  return {static_cast<int>(rank), static_cast<int64_t>(schedule_.program[rank].size()),
          fmt::format("rank {}, end of its program: {}", rank, what)};
}

CheckRun::Done& CheckRun::done(int stage, int microbatch) {
  return done_[static_cast<size_t>(microbatch) * static_cast<size_t>(schedule_.stages()) +
               static_cast<size_t>(stage)];
}

const CheckRun::Done& CheckRun::done(int stage, int microbatch) const {
  return done_[static_cast<size_t>(microbatch) * static_cast<size_t>(schedule_.stages()) +
               static_cast<size_t>(stage)];
}

bool CheckRun::gradients_ready(size_t rank, int stage) const {
  for (int m = 0; m < schedule_.microbatches; ++m) {
    if (schedule_.rank_of(stage, m) == static_cast<int>(rank) && !done(stage, m).w) return false;
  }
  return true;
}

}  // namespace trireme::schedule
