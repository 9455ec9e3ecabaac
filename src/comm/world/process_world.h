// SPDX-License-Identifier: Apache-2.0
// ProcessWorld: this process as one rank of an epoch of a run of processes, independent of the back
// end. A process that lives on after an abort makes another one, of a higher epoch. It
// publishes the rank's position to the store four times a second, reads from it whether the run was
// aborted, and agrees with the other ranks on one verdict. Back ends (gloo, nccl) are built on it.
// One rank has a store, too, if `trireme launch` has started it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/system/rank_activity.h"
#include "comm/abort_flags.h"
#include "comm/failure/flight_recorder.h"
#include "comm/failure/motion.h"
#include "comm/failure/verdict.h"
#include "comm/store/membership.h"
#include "comm/store/store.h"
#include "comm/store/store_server.h"
#include "comm/world/rank_env.h"
#include "comm/world/rendezvous.h"

namespace trireme::comm {

class ProcessWorld {
 public:
  struct Options {
    double deadline_s = 120;  // to reach the store, and (at least 30 s) for its replies
    double heartbeat_s = 0.25;
    // Without `trireme launch`: if no call has failed this long after a rank ended, the heartbeat
    // thread finds the verdict. A back end may wait for a dead peer until its deadline.
    double gone_s = 3;
  };
  // Finds the store (comm/world/rendezvous.h) and connects to it; also runs it if
  // info().hosts_store. Throws CommAborted, IoError, ConfigError, and Stopped when info.stop is set
  // while it waits. SIGPIPE is ignored from then on: a peer that dies is an error of the call, not
  // the end of this process.
  explicit ProcessWorld(const RankInfo& info,
                        Options options = {.deadline_s = 120, .heartbeat_s = 0.25, .gone_s = 3})
      : ProcessWorld(rendezvous(info, options.deadline_s), options) {}
  // Notifies the other ranks that this one leaves. After an abort, writes the flight record.
  ~ProcessWorld();
  ProcessWorld(const ProcessWorld&) = delete;
  ProcessWorld& operator=(const ProcessWorld&) = delete;

  const RankInfo& info() const { return info_; }
  FlightRecorder& recorder() { return *recorder_; }
  // The store for rendezvous with other ranks of this epoch. REQUIRES: info().store is not empty.
  Store& store() { return *store_; }
  // Whether a rank has ended without leaving. REQUIRES: more than one rank.
  bool has_lost_a_rank() { return membership_->changed(0).has_value(); }

  // Returns why the run was aborted; none if it was not.
  std::optional<Verdict> verdict() const;
  bool is_aborted() const;
  void throw_if_aborted() const;  // throws Aborted
  // Aborts the run on every rank. Any thread, any time. Only the first verdict is kept.
  void abort(const Verdict&) noexcept;
  void abort(const std::string& reason) noexcept {
    abort(Verdict{.cause = reason, .text = reason});
  }
  // Returns a verdict about this rank; `text`: empty for "rank N failed: " and the cause.
  Verdict own_verdict(VerdictKind, const std::string& cause, const std::string& text = "") const;

  // Set before any rank of this process learns that the run is aborted.
  AbortFlags& abort_flags() { return abort_flags_; }
  // For back ends whose aborted calls may send garbage to other ranks: called after the abort and
  // before it ends calls. Reports that the flags of this rank are set, and waits until those of all
  // ranks are that may be alive, at most a few heartbeats. A rank that reports later than others
  // have waited for it has AbortFlags::raised_late. Any thread; only the first call waits.
  void await_abort_flags() noexcept;

  // Whether info.stop is set.
  bool is_stop_requested() const { return info_.stop != nullptr && info_.stop->load(); }
  // For waits of the start, before there is anything to save. Throws Stopped if info.stop is set,
  // after it has aborted the run, and Aborted if the run is aborted.
  void throw_if_ended();

  // Waits until all keys are in the store. Throws Aborted when the run is aborted, and by
  // fail() when the deadline passes or a rank ends; with `ends_on_stop` as throw_if_ended().
  void wait_for(std::span<const std::string> keys, double deadline_s, bool ends_on_stop = true);

  enum class Failure : uint8_t { deadline, connection };
  // Called when a back end's call has failed: agrees with the other ranks on a verdict, aborts the
  // run and throws Aborted with it. `deadline_s` is the deadline that passed, `detail` the
  // library's message.
  [[noreturn]] void fail(Failure failure, const std::string& detail, double deadline_s);

  // Returns cycle_of() (comm/failure/verdict.h) of this rank from the current reports in the store.
  std::string wait_cycle();

  // Adds 1 to the store's count of processes that had to end themselves, because their groups did
  // not end. Any thread.
  void count_ended_by_budget() noexcept;
  static constexpr const char* ended_by_budget_key = "ended_by_budget";

  // Whether an abnormal end leaves a flight record; it does by default, unless the run is fenced.
  // Any thread.
  void keep_flight(bool keeps);
  // Returns what writes the flight record of the aborted epoch, which this object then does not;
  // for a process that goes on with the next epoch, and has better things to do first. Null: there
  // is none to be written.
  std::function<void()> take_flight();

  // Calls `wake` once when the run is aborted, on any thread, at once if it already is.
  class Wake {
   public:
    Wake(ProcessWorld& world, std::function<void()> wake);
    ~Wake();  // waits for a call in progress
    Wake(const Wake&) = delete;
    Wake& operator=(const Wake&) = delete;

   private:
    ProcessWorld& world_;
    int id_;
  };

 private:
  ProcessWorld(Rendezvous found, Options options);
  void send_heartbeats();
  // Looks at the motion until the next heartbeat is due: at once when the limit of the phase is
  // exceeded. Returns false if this object is being destroyed.
  bool await_heartbeat();
  std::optional<Motion> look_at_motion();
  void log_waiting(double waited_s, double deadline_s);
  void publish(bool has_left);
  void abort_here(const Verdict&) noexcept;
  Verdict store_is_gone(const base::Error&) const;
  void await_leaving();
  bool takes_flight();
  void write_flight() noexcept;
  // Returns the verdict that the ranks agree on, given the information of this rank.
  Verdict agree_on_verdict(Failure failure, const std::string& detail, double deadline_s);

  const RankInfo info_;
  const Options options_;
  const base::RankActivity& activity_;  // of the thread that made this object
  const std::shared_ptr<FlightRecorder> recorder_;
  std::unique_ptr<JobTokenFile> token_file_;
  std::unique_ptr<StoreServer> server_;
  std::atomic<bool> is_leaving_ = false;
  std::unique_ptr<Store> store_;            // used by the back end's rendezvous
  std::unique_ptr<Store> heartbeat_store_;  // of the heartbeat and of membership_
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<Store> verdict_store_;  // used by the thread that finds a failure

  mutable std::mutex mutex_;  // guards verdict_, is_stopping_, has_written_flight_, keeps_flight_
  std::condition_variable changed_;
  std::optional<Verdict> verdict_;
  bool is_stopping_ = false;
  bool has_written_flight_ = false;
  bool keeps_flight_ = true;

  AbortFlags abort_flags_;  // has its own lock
  std::mutex flags_mutex_;  // guards has_awaited_flags_, and is held while a thread waits
  bool has_awaited_flags_ = false;

  std::mutex motion_mutex_;  // guards motion_
  MotionWatch motion_;
  bool has_shown_hang_ = false;  // of the heartbeat's thread: the last look was beyond the limit

  std::mutex wake_mutex_;  // guards wakes_ and next_wake_, and is held while they are called
  std::map<int, std::function<void()>> wakes_;
  int next_wake_ = 0;

  std::thread heartbeat_thread_;
};

}  // namespace trireme::comm
