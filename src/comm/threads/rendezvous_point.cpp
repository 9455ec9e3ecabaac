// SPDX-License-Identifier: Apache-2.0
#include "comm/threads/rendezvous_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "base/check.h"
#include "base/error.h"

namespace trireme::comm {
namespace {

std::string text_of(const Signature& call) {
  return fmt::format("{} #{} ({}, {} bytes)", call.op, call.sequence, base::name_of(call.dtype),
                     call.bytes);
}

}  // namespace

bool Signature::operator==(const Signature& other) const {
  return std::string_view(op) == other.op && sequence == other.sequence && dtype == other.dtype &&
         bytes == other.bytes;
}

// ---- ThreadGroup

ThreadGroup::ThreadGroup(int ranks) {
  TRIREME_CHECK(ranks > 0, "a world of {} ranks", ranks);
  std::vector<int> everyone(static_cast<size_t>(ranks));
  std::iota(everyone.begin(), everyone.end(), 0);
  for (const int rank : everyone) recorders_.push_back(std::make_unique<FlightRecorder>(rank));
  points_.push_back(std::make_unique<RendezvousPoint>(*this, std::move(everyone)));
}

ThreadGroup::~ThreadGroup() = default;

void ThreadGroup::abort(const std::string& verdict) noexcept {
  const std::scoped_lock lock(mutex_);
  abort_locked(verdict);
}

std::string ThreadGroup::verdict() const {
  const std::scoped_lock lock(mutex_);
  return verdict_;
}

void ThreadGroup::check_not_aborted() const {
  const std::scoped_lock lock(mutex_);
  throw_if_aborted();
}

void ThreadGroup::abort_locked(const std::string& verdict) {
  if (is_aborted_) return;  // the first reason is the cause of the others
  abort_flags_.raise();
  is_aborted_ = true;
  verdict_ = verdict;
  for (const auto& point : points_) point->changed_.notify_all();
}

void ThreadGroup::throw_if_aborted() const {
  if (is_aborted_) throw base::CommAborted(verdict_);
}

RendezvousPoint& ThreadGroup::subgroup(RendezvousPoint& parent, int64_t number, int color,
                                       const std::vector<int>& world_ranks) {
  const std::scoped_lock lock(mutex_);
  throw_if_aborted();
  RendezvousPoint*& found = subgroups_[{&parent, number, color}];
  if (found == nullptr) {
    points_.push_back(std::make_unique<RendezvousPoint>(*this, world_ranks));
    found = points_.back().get();
  }
  return *found;
}

std::vector<Wait> ThreadGroup::waits_with(const Waiting& own) const {
  std::vector<Wait> waits = {own.point.describe(own)};
  for (const Waiting* other : waiting_) {
    if (other != &own && !other->is_over()) waits.push_back(other->point.describe(*other));
  }
  return waits;
}

std::string ThreadGroup::verdict_for(const Waiting& own) const {
  return blame(waits_with(own), 0, own.caller.deadline_s, [this](int rank) -> std::string {
    const auto last = recorders_[static_cast<size_t>(rank)]->last_completed();
    if (!last) return {};
    return fmt::format("{} #{} of '{}'", last->op, last->sequence, last->group);
  });
}

// ---- RendezvousPoint

RendezvousPoint::RendezvousPoint(ThreadGroup& thread_group, std::vector<int> world_ranks)
    : thread_group_(thread_group),
      world_ranks_(std::move(world_ranks)),
      slots_{std::vector<Slot>(world_ranks_.size()), std::vector<Slot>(world_ranks_.size())},
      has_entered_(world_ranks_.size()) {}

void RendezvousPoint::wait(Lock& lock, const Caller& caller, Kind kind, int peer,
                           const std::function<bool()>& is_over) {
  const ThreadGroup::Waiting own = {*this, caller, kind, peer, is_over};
  auto& waiting = thread_group_.waiting_;
  waiting.push_back(&own);
  if (caller.may_differ && !is_over()) {
    const std::string cycle = cycle_through(thread_group_.waits_with(own), 0);
    if (!cycle.empty()) thread_group_.abort_locked(cycle);
  }
  bool is_late = false;
  while (!is_over() && !thread_group_.is_aborted_ && !is_late) {
    is_late = changed_.wait_until(lock, caller.deadline) == std::cv_status::timeout;
  }
  const bool is_done = is_over();
  if (!is_done && !thread_group_.is_aborted_)
    thread_group_.abort_locked(thread_group_.verdict_for(own));
  waiting.erase(std::find(waiting.begin(), waiting.end(), &own));
  if (!is_done) thread_group_.throw_if_aborted();
}

Wait RendezvousPoint::describe(const ThreadGroup::Waiting& waiting) const {
  const Signature& call = waiting.caller.signature;
  const auto world_rank = [this](int rank) { return world_ranks_[static_cast<size_t>(rank)]; };
  Wait wait = {.rank = world_rank(waiting.caller.rank), .group = waiting.caller.group};
  if (waiting.kind == Kind::collective) {
    wait.call = wait.expected = fmt::format("{} #{}", call.op, call.sequence);
    for (size_t rank = 0; rank < has_entered_.size(); ++rank) {
      if (!has_entered_[rank]) wait.missing.push_back(world_ranks_[rank]);
    }
    return wait;
  }
  const std::string to = fmt::format("send #{} to rank ", call.sequence);
  const std::string from = fmt::format("recv #{} from rank ", call.sequence);
  const int peer = world_rank(waiting.peer);
  const bool is_sender = waiting.kind == Kind::send;
  wait.is_collective = false;
  wait.call = (is_sender ? to : from) + std::to_string(peer);
  wait.expected = (is_sender ? from : to) + std::to_string(wait.rank);
  wait.missing = {peer};
  return wait;
}

void RendezvousPoint::arrive(int rank, Slot slot) {
  const auto place = static_cast<size_t>(rank);
  TRIREME_CHECK(!has_entered_[place],
                "rank {} entered twice: only one thread may use a communicator at a time",
                world_ranks_[place]);
  slots()[place] = std::move(slot);
  has_entered_[place] = true;
  ++entered_;
}

void RendezvousPoint::begin_next_round() {
  entered_ = 0;
  has_entered_.assign(has_entered_.size(), false);
  ++round_;
  changed_.notify_all();
}

std::string RendezvousPoint::find_mismatch(const std::string& group) {
  const auto& entered = slots();
  const auto votes = [&](const Slot& slot) {
    return std::count_if(entered.begin(), entered.end(),
                         [&](const Slot& p) { return p.signature == slot.signature; });
  };
  const auto majority =
      std::max_element(entered.begin(), entered.end(),
                       [&](const Slot& a, const Slot& b) { return votes(a) < votes(b); });
  const auto odd = std::find_if(entered.begin(), entered.end(), [&](const Slot& slot) {
    return !(slot.signature == majority->signature);
  });
  if (odd == entered.end()) return {};
  const auto rank_of = [&](auto slot) {
    return world_ranks_[static_cast<size_t>(slot - entered.begin())];
  };
  return fmt::format("rank {} entered {} of group '{}', but rank {} entered {}", rank_of(odd),
                     text_of(odd->signature), group, rank_of(majority),
                     text_of(majority->signature));
}

const std::vector<Slot>& RendezvousPoint::enter(const Caller& caller, Slot slot) {
  Lock lock(thread_group_.mutex_);
  thread_group_.throw_if_aborted();
  const auto& published = slots();
  slot.signature = caller.signature;
  arrive(caller.rank, std::move(slot));
  if (entered_ == static_cast<int>(world_ranks_.size())) {
    const std::string mismatch = caller.may_differ ? "" : find_mismatch(caller.group);
    if (!mismatch.empty()) {
      thread_group_.abort_locked(mismatch);
      thread_group_.throw_if_aborted();
    }
    begin_next_round();
  } else {
    wait(lock, caller, Kind::collective, -1, [this, now = round_] { return round_ != now; });
  }
  return published;
}

const std::vector<Slot>& RendezvousPoint::leave(int rank, Slot slot) {
  Lock lock(thread_group_.mutex_);
  const auto& published = slots();
  arrive(rank, std::move(slot));
  if (entered_ == static_cast<int>(world_ranks_.size())) {
    begin_next_round();
  } else {
    changed_.wait(lock, [this, now = round_] { return round_ != now; });
  }
  return published;
}

void RendezvousPoint::post(const Caller& caller, int to, std::shared_ptr<Message> message) {
  const std::scoped_lock lock(thread_group_.mutex_);
  thread_group_.throw_if_aborted();
  const auto place = std::tuple(caller.rank, to, caller.signature.sequence);
  const bool is_new = messages_.try_emplace(place, std::move(message)).second;
  TRIREME_CHECK(is_new, "rank {} sent message #{} of group '{}' twice",
                world_ranks_[static_cast<size_t>(caller.rank)], caller.signature.sequence,
                caller.group);
  changed_.notify_all();
}

void RendezvousPoint::await(const Caller& caller, int to, Message& message) {
  Lock lock(thread_group_.mutex_);
  try {
    wait(lock, caller, Kind::send, to, [&message] { return message.is_taken; });
  } catch (...) {
    message.is_withdrawn = true;
    throw;
  }
  changed_.wait(lock, [&message] { return message.is_done; });
}

void RendezvousPoint::withdraw(Message& message) noexcept {
  Lock lock(thread_group_.mutex_);
  if (message.is_taken) {
    changed_.wait(lock, [&message] { return message.is_done; });
  } else {
    message.is_withdrawn = true;
  }
}

std::shared_ptr<Message> RendezvousPoint::take(const Caller& caller, int from, int64_t bytes) {
  Lock lock(thread_group_.mutex_);
  thread_group_.throw_if_aborted();
  const int64_t number = caller.signature.sequence;
  const auto place = std::tuple(from, caller.rank, number);
  wait(lock, caller, Kind::recv, from, [&] { return messages_.contains(place); });
  const std::shared_ptr<Message> message = messages_.at(place);
  const int sender = world_ranks_[static_cast<size_t>(from)];
  const int receiver = world_ranks_[static_cast<size_t>(caller.rank)];
  if (message->is_withdrawn) {
    thread_group_.abort_locked(
        fmt::format("rank {} dropped message #{} of group '{}' before rank {} received it", sender,
                    number, caller.group, receiver));
  } else if (message->bytes != bytes) {
    thread_group_.abort_locked(fmt::format(
        "rank {} expects {} bytes from rank {} as message #{} of group '{}', but {} were sent",
        receiver, bytes, sender, number, caller.group, message->bytes));
  } else {
    messages_.erase(place);
    message->is_taken = true;
    return message;
  }
  throw base::CommAborted(thread_group_.verdict_);
}

void RendezvousPoint::finish(Message& message, device::Event done) {
  const std::scoped_lock lock(thread_group_.mutex_);
  message.done = std::move(done);
  message.is_done = true;
  changed_.notify_all();
}

}  // namespace trireme::comm
