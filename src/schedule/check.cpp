// SPDX-License-Identifier: Apache-2.0
// The proof: first that every action stands where its lane says, then an abstract run. Each rank
// goes through its program in order and only messages hold it up, so the answer does not depend on
// the order in which ranks are looked at.
#include <algorithm>
#include <compare>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "schedule/schedule.h"

namespace trireme::schedule {
namespace {

using Fault = std::optional<std::string>;  // what is wrong, or nothing

Fault fault_of_shape(const Schedule& schedule);
Fault fault_of_place(const Schedule& schedule, size_t rank, const Action& action);
Fault fault_of_peer(const Schedule& schedule, size_t rank, const Action& action);
std::string located(const Schedule& schedule, size_t rank, size_t position);

class Run {
 public:
  Run(const Schedule& schedule, int send_buffers);
  Fault play();

 private:
  // What has happened to one micro-batch on one stage.
  struct Done {
    bool f = false, b = false, w = false, r = false;
    bool sent_y = false, received_x = false, sent_dx = false, received_dy = false;
  };
  enum class Kind : uint8_t { activations, gradients };
  struct Channel {
    size_t from = 0, to = 0;
    Kind kind = Kind::activations;
    auto operator<=>(const Channel&) const = default;
  };
  struct Message {
    int stage = 0, microbatch = 0;  // of the sender's action
    size_t position = 0;            // in the sender's program
  };
  enum class Outcome : uint8_t { next, posted, waits };

  // One action of `rank`; the fault, if there is one, is left in fault_.
  Outcome step(size_t rank);
  Outcome forward(size_t rank, const Action& action);
  Outcome backward(size_t rank, const Action& action);
  Outcome send(size_t rank, const Action& action);
  Outcome receive(size_t rank, const Action& action);
  Outcome reduce(size_t rank, const Action& action);
  // Notes a fault of the action that `rank` is at unless `condition` holds; the first fault stays.
  // Always Outcome::next: play() stops at a fault.
  Outcome expect(bool condition, size_t rank, std::string_view what);

  Fault deadlock() const;
  Fault left_over() const;
  Fault incomplete() const;

  Done& done(int stage, int microbatch);
  const Done& done(int stage, int microbatch) const;
  bool gradients_ready(size_t rank, int stage) const;

  const Schedule& schedule_;
  const size_t send_buffers_;
  std::vector<size_t> position_;  // by rank
  std::vector<bool> posted_;      // by rank: with rendezvous, its send waits in the channel
  std::vector<Done> done_;        // by micro-batch and stage
  std::map<std::pair<size_t, int>, bool> reduced_;  // by rank and stage
  std::map<Channel, std::deque<Message>> channels_;
  Fault fault_;
};

}  // namespace

base::Result<Schedule> check(Schedule schedule, int send_buffers) {
  TRIREME_CHECK(send_buffers >= 0, "{} send buffers", send_buffers);
  if (const Fault fault = fault_of_shape(schedule)) return base::Result<Schedule>::no(*fault);
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    for (size_t at = 0; at < schedule.program[rank].size(); ++at) {
      const Action& action = schedule.program[rank][at];
      Fault fault = fault_of_place(schedule, rank, action);
      if (!fault) fault = fault_of_peer(schedule, rank, action);
      if (!fault) continue;
      return base::Result<Schedule>::no(located(schedule, rank, at) + ": " + *fault);
    }
  }
  if (const Fault fault = Run(schedule, send_buffers).play()) {
    return base::Result<Schedule>::no(*fault);
  }
  return schedule;
}

namespace {

bool is_send(Op op) { return op == Op::SendY || op == Op::SendDx; }
bool is_receive(Op op) { return op == Op::RecvX || op == Op::RecvDy; }
bool is_of_step(Op op) { return op == Op::ReduceGrads || op == Op::SyncTied; }

Fault fault_of_shape(const Schedule& schedule) {
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

// Is it the work of this rank at all?
Fault fault_of_place(const Schedule& schedule, size_t rank, const Action& action) {
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

// REQUIRES: fault_of_place() found none.
Fault fault_of_peer(const Schedule& schedule, size_t rank, const Action& action) {
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

// "rank 1, action 4 (1BW0)"
std::string located(const Schedule& schedule, size_t rank, size_t position) {
  return fmt::format("rank {}, action {} ({})", rank, position,
                     to_text(schedule.program[rank][position]));
}

Run::Run(const Schedule& schedule, int send_buffers)
    : schedule_(schedule),
      send_buffers_(static_cast<size_t>(send_buffers)),
      position_(schedule.program.size(), 0),
      posted_(schedule.program.size(), false),
      done_(static_cast<size_t>(schedule.stages()) * static_cast<size_t>(schedule.microbatches)) {}

Fault Run::play() {
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
  if (const Fault fault = deadlock()) return fault;
  if (const Fault fault = left_over()) return fault;
  return incomplete();
}

Run::Outcome Run::step(size_t rank) {
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

Run::Outcome Run::forward(size_t rank, const Action& action) {
  Done& here = done(action.stage, action.microbatch);
  expect(!here.f, rank, "runs a second time");
  here.f = true;
  if (action.stage == 0) return Outcome::next;
  const int before = action.stage - 1;
  const bool same_rank = schedule_.rank_of(before, action.microbatch) == static_cast<int>(rank);
  return expect(same_rank ? done(before, action.microbatch).f : here.received_x, rank,
                same_rank ? "F of the stage before has not run" : "its input was not received");
}

Run::Outcome Run::backward(size_t rank, const Action& action) {
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

Run::Outcome Run::send(size_t rank, const Action& action) {
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

Run::Outcome Run::receive(size_t rank, const Action& action) {
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
  if (send_buffers_ == 0) {  // the rendezvous is done: the sender goes on too
    posted_[key.from] = false;
    ++position_[key.from];
  }
  Done& here = done(action.stage, action.microbatch);
  (is_x ? here.received_x : here.received_dy) = true;
  return Outcome::next;
}

Run::Outcome Run::reduce(size_t rank, const Action& action) {
  expect(gradients_ready(rank, action.stage), rank,
         "comes before the last weight gradient of its stage");
  bool& reduced = reduced_[{rank, action.stage}];
  expect(!reduced, rank, "reduces a second time");
  reduced = true;
  return Outcome::next;
}

Run::Outcome Run::expect(bool condition, size_t rank, std::string_view what) {
  if (!condition && !fault_) {
    fault_ = fmt::format("{}: {}", located(schedule_, rank, position_[rank]), what);
  }
  return Outcome::next;
}

Fault Run::deadlock() const {
  std::string text;
  for (size_t rank = 0; rank < position_.size(); ++rank) {
    if (position_[rank] == schedule_.program[rank].size()) continue;
    const auto peer = static_cast<size_t>(schedule_.program[rank][position_[rank]].peer);
    const bool peer_ended = position_[peer] == schedule_.program[peer].size();
    text += fmt::format("{}{} waits for rank {}{}", text.empty() ? "" : "; ",
                        located(schedule_, rank, position_[rank]), peer,
                        peer_ended ? ", which has ended" : "");
  }
  if (text.empty()) return {};
  return fmt::format("deadlock with {} send buffers: {}", send_buffers_, text);
}

Fault Run::left_over() const {
  for (const auto& [key, messages] : channels_) {
    if (messages.empty()) continue;
    return fmt::format("{}: left over, rank {} never receives it",
                       located(schedule_, key.from, messages.front().position), key.to);
  }
  return {};
}

Fault Run::incomplete() const {
  for (int m = 0; m < schedule_.microbatches; ++m) {
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      const Done& here = done(stage, m);
      if (here.w) continue;
      return fmt::format("rank {}, end of its program: micro-batch {} has no {} on stage {}",
                         schedule_.rank_of(stage, m), m,
                         !here.f   ? "F"
                         : !here.b ? "B"
                                   : "W",
                         stage);
    }
  }
  // Reducing and syncing are for the whole pipeline or, in a program before those passes, for
  // nobody.
  size_t synced = 0;
  for (const std::vector<Action>& program : schedule_.program) {
    synced += !program.empty() && program.back().op == Op::SyncTied ? 1 : 0;
  }
  for (size_t rank = 0; rank < schedule_.program.size(); ++rank) {
    const std::vector<Action>& program = schedule_.program[rank];
    for (const Action& action : program) {
      const bool adds_up = action.op == Op::W || action.op == Op::BW;
      if (!adds_up || reduced_.empty() || reduced_.contains({rank, action.stage})) continue;
      return fmt::format("rank {}, end of its program: {}ReduceGrads is missing", rank,
                         action.stage);
    }
    if (synced > 0 && (program.empty() || program.back().op != Op::SyncTied)) {
      return fmt::format("rank {}, end of its program: SyncTied is missing", rank);
    }
  }
  return {};
}

Run::Done& Run::done(int stage, int microbatch) {
  return done_[static_cast<size_t>(microbatch) * static_cast<size_t>(schedule_.stages()) +
               static_cast<size_t>(stage)];
}

const Run::Done& Run::done(int stage, int microbatch) const {
  return done_[static_cast<size_t>(microbatch) * static_cast<size_t>(schedule_.stages()) +
               static_cast<size_t>(stage)];
}

bool Run::gradients_ready(size_t rank, int stage) const {
  for (int m = 0; m < schedule_.microbatches; ++m) {
    if (schedule_.rank_of(stage, m) == static_cast<int>(rank) && !done(stage, m).w) return false;
  }
  return true;
}

}  // namespace
}  // namespace trireme::schedule
