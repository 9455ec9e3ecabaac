// SPDX-License-Identifier: Apache-2.0
// Where the host threads of ranks meet. One lock for the whole world, because a verdict looks at
// all groups at once and the ranks are few.
//
// A collective is two meetings. At the first every rank shows where its source lies and the event
// after which it may be read; each then queues its copies. At the second every rank shows the event
// after which it has read. The first can be aborted; whoever has passed it comes to the second
// without waiting for anybody, so that one is not interrupted: no rank gives its memory back while
// another reads it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/clock.h"
#include "comm/failure/flight_recorder.h"
#include "comm/threads/blame.h"
#include "device/device.h"

namespace trireme::comm {

// A call as the others must make it, too.
struct Signature {
  const char* op = "";
  int64_t sequence = 0;
  base::DType dtype = base::DType::u8;
  int64_t bytes = 0;  // of one step of the call

  bool operator==(const Signature&) const;
};

// What a rank shows the others.
struct Slot {
  const std::byte* data = nullptr;
  device::Event event;
  int color = 0, key = 0;  // of a split
  std::string text;        // of debug mode
  Signature signature;
};

// Who comes, for messages and deadlines.
struct Caller {
  int rank = 0;  // of the group
  std::string group;
  Signature signature;
  Clock::time_point deadline;
  double deadline_s = 0;
  // Debug mode: ranks may come to different calls, which they then compare themselves; and a circle
  // of ranks that wait for each other is named at once, not at the deadline.
  bool may_differ = false;
};

// Its sender and the queue share it: either may be the last to need it.
struct Message {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  device::Event ready, done;
  bool is_taken = false, is_done = false, is_withdrawn = false;
};

class RendezvousPoint;

// All groups of one world, and whether it was aborted.
class ThreadGroup {
 public:
  explicit ThreadGroup(int ranks);
  ~ThreadGroup();

  RendezvousPoint& world() { return *points_.front(); }
  FlightRecorder& recorder(int rank) { return *recorders_[static_cast<size_t>(rank)]; }
  int ranks() const { return static_cast<int>(recorders_.size()); }

  void abort(const std::string& verdict) noexcept;
  std::string verdict() const;
  void check_not_aborted() const;  // throws CommAborted once it was aborted

  // The group that split number `number` of `parent` made for `color`: the first who asks makes it.
  RendezvousPoint& subgroup(RendezvousPoint& parent, int64_t number, int color,
                            const std::vector<int>& world_ranks);

 private:
  friend class RendezvousPoint;
  enum class Kind : uint8_t { collective, send, recv };
  struct Waiting {
    const RendezvousPoint& point;
    const Caller& caller;
    Kind kind;
    int peer;  // of the group
    const std::function<bool()>& is_over;
  };

  // ---- REQUIRE: mutex_ held
  void abort_locked(const std::string& verdict);
  void throw_if_aborted() const;
  std::vector<Wait> waits_with(const Waiting& own) const;  // `own` first
  // The deadline of `own` has passed.
  std::string verdict_for(const Waiting& own) const;

  mutable std::mutex mutex_;  // guards everything here and in the meetings
  std::vector<std::unique_ptr<FlightRecorder>> recorders_;
  std::vector<std::unique_ptr<RendezvousPoint>> points_;
  std::map<std::tuple<const RendezvousPoint*, int64_t, int>, RendezvousPoint*> subgroups_;
  std::vector<const Waiting*> waiting_;
  bool is_aborted_ = false;
  std::string verdict_;
};

// One group of ranks. Throws CommAborted where it says so.
class RendezvousPoint {
 public:
  RendezvousPoint(ThreadGroup& thread_group, std::vector<int> world_ranks);

  const std::vector<int>& world_ranks() const { return world_ranks_; }

  // Waits for all; gives what all have published, by rank of the group, valid until this rank comes
  // again. Throws, also when ranks came to different calls.
  const std::vector<Slot>& enter(const Caller&, Slot);
  // The second meeting of a collective.
  const std::vector<Slot>& leave(int rank, Slot);

  // ---- messages. The number of a message between two ranks is the sequence of the caller's call:
  // they are taken in that order whichever stream comes first.
  // Shows a message to `to`. Throws.
  void post(const Caller&, int to, std::shared_ptr<Message>);
  // Waits until `to` has queued its copies of what was posted; done is then set. Throws if it was
  // not taken, and nobody reads it from then on.
  void await(const Caller&, int to, Message&);
  // The sender takes its memory back: waits for copies that are being queued. Who comes for a
  // message that was not taken throws.
  void withdraw(Message&) noexcept;
  // Waits for a message to this rank; finish() must follow. Throws.
  std::shared_ptr<Message> take(const Caller&, int from, int64_t bytes);
  void finish(Message&, device::Event done);

 private:
  friend class ThreadGroup;
  using Lock = std::unique_lock<std::mutex>;
  using Kind = ThreadGroup::Kind;

  // ---- REQUIRE: the thread_group's lock
  // Waits until `is_over`; throws when the world is aborted or the deadline passes before.
  void wait(Lock&, const Caller&, Kind, int peer, const std::function<bool()>& is_over);
  std::vector<Slot>& slots() { return slots_[static_cast<size_t>(round_ % 2)]; }
  void arrive(int rank, Slot);
  void begin_next_round();  // all have come: the next generation begins
  // Empty if all ranks came to the same call.
  std::string find_mismatch(const std::string& group);
  Wait describe(const ThreadGroup::Waiting&) const;

  ThreadGroup& thread_group_;
  const std::vector<int> world_ranks_;
  std::condition_variable changed_;
  // Slots alternate: those of a generation are written again only after all ranks came to the next.
  std::vector<Slot> slots_[2];
  std::vector<bool> has_entered_;
  int entered_ = 0;
  int64_t round_ = 0;
  // By sender, receiver and number.
  std::map<std::tuple<int, int, int64_t>, std::shared_ptr<Message>> messages_;
};

}  // namespace trireme::comm
