// SPDX-License-Identifier: Apache-2.0
#include "comm/threads/meeting.h"

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

// ---- Gathering

Gathering::Gathering(int ranks) {
  TRIREME_CHECK(ranks > 0, "a world of {} ranks", ranks);
  std::vector<int> everyone(static_cast<size_t>(ranks));
  std::iota(everyone.begin(), everyone.end(), 0);
  for (const int rank : everyone) recorders_.push_back(std::make_unique<FlightRecorder>(rank));
  meetings_.push_back(std::make_unique<Meeting>(*this, std::move(everyone)));
}

Gathering::~Gathering() = default;

void Gathering::abort(const std::string& verdict) noexcept {
  const std::scoped_lock lock(mutex_);
  abort_locked(verdict);
}

std::string Gathering::verdict() const {
  const std::scoped_lock lock(mutex_);
  return verdict_;
}

void Gathering::check_is_open() const {
  const std::scoped_lock lock(mutex_);
  throw_if_aborted();
}

void Gathering::abort_locked(const std::string& verdict) {
  if (is_aborted_) return;  // the first reason is the cause of the others
  is_aborted_ = true;
  verdict_ = verdict;
  for (const auto& meeting : meetings_) meeting->changed_.notify_all();
}

void Gathering::throw_if_aborted() const {
  if (is_aborted_) throw base::CommAborted(verdict_);
}

Meeting& Gathering::part_of(Meeting& parent, int64_t number, int color,
                            const std::vector<int>& world_ranks) {
  const std::scoped_lock lock(mutex_);
  throw_if_aborted();
  Meeting*& found = parts_[{&parent, number, color}];
  if (found == nullptr) {
    meetings_.push_back(std::make_unique<Meeting>(*this, world_ranks));
    found = meetings_.back().get();
  }
  return *found;
}

std::vector<Wait> Gathering::waits_with(const Waiting& own) const {
  std::vector<Wait> waits = {own.meeting.describe(own)};
  for (const Waiting* other : waiting_) {
    if (other != &own && !other->is_over()) waits.push_back(other->meeting.describe(*other));
  }
  return waits;
}

std::string Gathering::verdict_for(const Waiting& own) const {
  return blame(waits_with(own), 0, own.visitor.deadline_s, [this](int rank) -> std::string {
    const auto last = recorders_[static_cast<size_t>(rank)]->last_completed();
    if (!last) return {};
    return fmt::format("{} #{} of '{}'", last->op, last->sequence, last->group);
  });
}

// ---- Meeting

Meeting::Meeting(Gathering& gathering, std::vector<int> world_ranks)
    : gathering_(gathering),
      world_ranks_(std::move(world_ranks)),
      slots_{std::vector<Post>(world_ranks_.size()), std::vector<Post>(world_ranks_.size())},
      has_come_(world_ranks_.size()) {}

void Meeting::wait(Lock& lock, const Visitor& visitor, Kind kind, int peer,
                   const std::function<bool()>& is_over) {
  const Gathering::Waiting own = {*this, visitor, kind, peer, is_over};
  auto& waiting = gathering_.waiting_;
  waiting.push_back(&own);
  if (visitor.may_differ && !is_over()) {
    const std::string circle = circle_through(gathering_.waits_with(own), 0);
    if (!circle.empty()) gathering_.abort_locked(circle);
  }
  bool has_passed = false;
  while (!is_over() && !gathering_.is_aborted_ && !has_passed) {
    has_passed = changed_.wait_until(lock, visitor.deadline) == std::cv_status::timeout;
  }
  const bool is_done = is_over();
  if (!is_done && !gathering_.is_aborted_) gathering_.abort_locked(gathering_.verdict_for(own));
  waiting.erase(std::find(waiting.begin(), waiting.end(), &own));
  if (!is_done) gathering_.throw_if_aborted();
}

Wait Meeting::describe(const Gathering::Waiting& waiting) const {
  const Signature& call = waiting.visitor.signature;
  const auto world_rank = [this](int rank) { return world_ranks_[static_cast<size_t>(rank)]; };
  Wait wait = {.rank = world_rank(waiting.visitor.rank), .group = waiting.visitor.group};
  if (waiting.kind == Kind::collective) {
    wait.call = wait.expected = fmt::format("{} #{}", call.op, call.sequence);
    for (size_t rank = 0; rank < has_come_.size(); ++rank) {
      if (!has_come_[rank]) wait.missing.push_back(world_ranks_[rank]);
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

void Meeting::arrive(int rank, Post post) {
  const auto place = static_cast<size_t>(rank);
  TRIREME_CHECK(!has_come_[place], "rank {} came twice: one communicator, one thread at a time",
                world_ranks_[place]);
  slots()[place] = std::move(post);
  has_come_[place] = true;
  ++come_;
}

void Meeting::open() {
  come_ = 0;
  has_come_.assign(has_come_.size(), false);
  ++generation_;
  changed_.notify_all();
}

std::string Meeting::find_mismatch(const std::string& group) {
  const auto& posts = slots();
  const auto votes = [&](const Post& post) {
    return std::count_if(posts.begin(), posts.end(),
                         [&](const Post& p) { return p.signature == post.signature; });
  };
  const auto usual =
      std::max_element(posts.begin(), posts.end(),
                       [&](const Post& a, const Post& b) { return votes(a) < votes(b); });
  const auto odd = std::find_if(posts.begin(), posts.end(), [&](const Post& post) {
    return !(post.signature == usual->signature);
  });
  if (odd == posts.end()) return {};
  const auto rank_of = [&](auto post) {
    return world_ranks_[static_cast<size_t>(post - posts.begin())];
  };
  return fmt::format("rank {} came to {} of group '{}' where rank {} came to {}", rank_of(odd),
                     text_of(odd->signature), group, rank_of(usual), text_of(usual->signature));
}

const std::vector<Post>& Meeting::meet(const Visitor& visitor, Post post) {
  Lock lock(gathering_.mutex_);
  gathering_.throw_if_aborted();
  const auto& shown = slots();
  post.signature = visitor.signature;
  arrive(visitor.rank, std::move(post));
  if (come_ == static_cast<int>(world_ranks_.size())) {
    const std::string mismatch = visitor.may_differ ? "" : find_mismatch(visitor.group);
    if (!mismatch.empty()) {
      gathering_.abort_locked(mismatch);
      gathering_.throw_if_aborted();
    }
    open();
  } else {
    wait(lock, visitor, Kind::collective, -1,
         [this, now = generation_] { return generation_ != now; });
  }
  return shown;
}

const std::vector<Post>& Meeting::part(int rank, Post post) {
  Lock lock(gathering_.mutex_);
  const auto& shown = slots();
  arrive(rank, std::move(post));
  if (come_ == static_cast<int>(world_ranks_.size())) {
    open();
  } else {
    changed_.wait(lock, [this, now = generation_] { return generation_ != now; });
  }
  return shown;
}

void Meeting::post(const Visitor& visitor, int to, std::shared_ptr<Message> message) {
  const std::scoped_lock lock(gathering_.mutex_);
  gathering_.throw_if_aborted();
  const auto place = std::tuple(visitor.rank, to, visitor.signature.sequence);
  const bool is_new = messages_.try_emplace(place, std::move(message)).second;
  TRIREME_CHECK(is_new, "rank {} sent message #{} of group '{}' twice",
                world_ranks_[static_cast<size_t>(visitor.rank)], visitor.signature.sequence,
                visitor.group);
  changed_.notify_all();
}

void Meeting::await(const Visitor& visitor, int to, Message& message) {
  Lock lock(gathering_.mutex_);
  try {
    wait(lock, visitor, Kind::send, to, [&message] { return message.is_taken; });
  } catch (...) {
    message.is_withdrawn = true;
    throw;
  }
  changed_.wait(lock, [&message] { return message.is_done; });
}

void Meeting::withdraw(Message& message) noexcept {
  Lock lock(gathering_.mutex_);
  if (message.is_taken) {
    changed_.wait(lock, [&message] { return message.is_done; });
  } else {
    message.is_withdrawn = true;
  }
}

std::shared_ptr<Message> Meeting::take(const Visitor& visitor, int from, int64_t bytes) {
  Lock lock(gathering_.mutex_);
  gathering_.throw_if_aborted();
  const int64_t number = visitor.signature.sequence;
  const auto place = std::tuple(from, visitor.rank, number);
  wait(lock, visitor, Kind::recv, from, [&] { return messages_.contains(place); });
  const std::shared_ptr<Message> message = messages_.at(place);
  const int sender = world_ranks_[static_cast<size_t>(from)];
  const int receiver = world_ranks_[static_cast<size_t>(visitor.rank)];
  if (message->is_withdrawn) {
    gathering_.abort_locked(
        fmt::format("rank {} dropped message #{} of group '{}' before rank {} received it", sender,
                    number, visitor.group, receiver));
  } else if (message->bytes != bytes) {
    gathering_.abort_locked(fmt::format(
        "rank {} receives {} bytes from rank {} as message #{} of group '{}', which sends {}",
        receiver, bytes, sender, number, visitor.group, message->bytes));
  } else {
    messages_.erase(place);
    message->is_taken = true;
    return message;
  }
  throw base::CommAborted(gathering_.verdict_);
}

void Meeting::finish(Message& message, device::Event done) {
  const std::scoped_lock lock(gathering_.mutex_);
  message.done = std::move(done);
  message.is_done = true;
  changed_.notify_all();
}

}  // namespace trireme::comm
