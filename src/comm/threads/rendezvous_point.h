// SPDX-License-Identifier: Apache-2.0
// Where the host threads of ranks rendezvous. One lock serves the whole world, because a verdict
// reads the state of all groups at once and the ranks are few.
//
// A collective has two barriers. At the first, enter(), every rank publishes the address of its
// source and the event after which it may be read; each rank then queues its copies. At the second,
// leave(), every rank publishes the event after which it has finished reading. The first can be
// aborted. A rank that has passed the first barrier reaches the second without blocking, so the
// second needs no abort path: no rank frees its memory while another reads it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/abort_flags.h"
#include "comm/clock.h"
#include "comm/failure/flight_recorder.h"
#include "comm/levels/transfers.h"
#include "comm/threads/blame.h"
#include "device/device.h"

namespace trireme::comm {

// What the calls of all ranks in one collective must have in common.
struct Signature {
  const char* op = "";
  int64_t sequence = 0;
  base::DType dtype = base::DType::u8;
  int64_t bytes = 0;  // moved by one step of the call

  bool operator==(const Signature&) const;
};

// What one rank publishes to the others at a barrier.
struct Slot {
  const std::byte* data = nullptr;
  std::span<const Outgoing> sends;  // instead of data: to single ranks
  device::Event event;
  int color = 0, key = 0;  // used by split()
  std::string text;        // used by debug mode
  Signature signature;
};

// The rank that makes a call, for error messages and deadlines.
struct Caller {
  int rank = 0;  // in the group
  std::string group;
  Signature signature;
  Clock::time_point deadline;
  double deadline_s = 0;
  // Debug mode: ranks may enter different calls, which the callers then compare; and a cycle of
  // ranks that wait for each other is reported at once, not at the deadline.
  bool may_differ = false;
};

// A message in flight. Shared by its sender and the queue: either may be the last to need it.
struct Message {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  device::Event ready, done;
  bool is_taken = false, is_done = false, is_withdrawn = false;
};

class RendezvousPoint;

// The thread ranks of one world: all their groups, and whether the world was aborted.
class ThreadGroup {
 public:
  explicit ThreadGroup(int ranks);
  ~ThreadGroup();

  RendezvousPoint& world() { return *points_.front(); }
  FlightRecorder& recorder(int rank) { return *recorders_[static_cast<size_t>(rank)]; }
  int ranks() const { return static_cast<int>(recorders_.size()); }

  void abort(const std::string& verdict) noexcept;
  std::string verdict() const;
  void check_not_aborted() const;  // throws CommAborted if the world was aborted
  AbortFlags& abort_flags() { return abort_flags_; }

  // Returns the group that split number `number` of `parent` makes for `color`. The first rank that
  // calls it creates the group.
  RendezvousPoint& subgroup(RendezvousPoint& parent, int64_t number, int color,
                            const std::vector<int>& world_ranks);

 private:
  friend class RendezvousPoint;
  enum class Kind : uint8_t { collective, send, recv };
  struct Waiting {
    const RendezvousPoint& point;
    const Caller& caller;
    Kind kind;
    int peer;  // rank in the group
    const std::function<bool()>& is_over;
  };

  // ---- REQUIRE: mutex_ held
  void abort_locked(const std::string& verdict);
  void throw_if_aborted() const;
  std::vector<Wait> waits_with(const Waiting& own) const;  // `own` first
  // Returns the verdict when the deadline of `own` has passed.
  std::string verdict_for(const Waiting& own) const;

  mutable std::mutex mutex_;  // guards everything here and in the rendezvous points
  std::vector<std::unique_ptr<FlightRecorder>> recorders_;
  std::vector<std::unique_ptr<RendezvousPoint>> points_;
  std::map<std::tuple<const RendezvousPoint*, int64_t, int>, RendezvousPoint*> subgroups_;
  std::vector<const Waiting*> waiting_;
  bool is_aborted_ = false;
  std::string verdict_;
  AbortFlags abort_flags_;  // has its own lock
};

// The rendezvous point of one group of ranks. Functions marked "Throws" throw CommAborted.
class RendezvousPoint {
 public:
  RendezvousPoint(ThreadGroup& thread_group, std::vector<int> world_ranks);

  const std::vector<int>& world_ranks() const { return world_ranks_; }

  // The first barrier of a collective: waits for all ranks and returns what they have published, by
  // rank in the group, valid until this rank enters again. Throws, also if ranks entered different
  // calls.
  const std::vector<Slot>& enter(const Caller&, Slot);
  // The second barrier of a collective.
  const std::vector<Slot>& leave(int rank, Slot);

  // ---- messages. The number of a message between two ranks is the sequence of the caller's call:
  // messages are received in that order, whichever stream is first.
  // Publishes a message for rank `to`. Throws.
  void post(const Caller&, int to, std::shared_ptr<Message>);
  // Waits until `to` has queued its copies of the posted message; `done` is then set. Throws if the
  // message was not received; it is withdrawn then, and no rank reads it any more.
  void await(const Caller&, int to, Message&);
  // The sender reclaims its memory: waits for copies that are being queued. A receiver of a message
  // that was withdrawn throws.
  void withdraw(Message&) noexcept;
  // Waits for a message to this rank; finish() must follow. Throws.
  std::shared_ptr<Message> take(const Caller&, int from, int64_t bytes);
  void finish(Message&, device::Event done);

 private:
  friend class ThreadGroup;
  using Lock = std::unique_lock<std::mutex>;
  using Kind = ThreadGroup::Kind;

  // ---- REQUIRE: the thread group's lock is held
  // Waits until `is_over`; throws if the world is aborted or the deadline passes first.
  void wait(Lock&, const Caller&, Kind, int peer, const std::function<bool()>& is_over);
  std::vector<Slot>& slots() { return slots_[static_cast<size_t>(round_ % 2)]; }
  void arrive(int rank, Slot);
  void begin_next_round();  // called when all ranks have arrived
  // Returns an empty text if all ranks entered the same call.
  std::string find_mismatch(const std::string& group);
  Wait describe(const ThreadGroup::Waiting&) const;

  ThreadGroup& thread_group_;
  const std::vector<int> world_ranks_;
  std::condition_variable changed_;
  // Slots alternate: those of a round are overwritten only after all ranks have entered the next.
  std::vector<Slot> slots_[2];
  std::vector<bool> has_entered_;
  int entered_ = 0;
  int64_t round_ = 0;
  // By sender, receiver and number.
  std::map<std::tuple<int, int, int64_t>, std::shared_ptr<Message>> messages_;
};

}  // namespace trireme::comm
