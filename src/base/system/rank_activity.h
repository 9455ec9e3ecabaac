// SPDX-License-Identifier: Apache-2.0
// RankActivity: the rank and the step that a thread works for, the last op that was queued for it,
// the phase it is in, and how far the device is that it queues work for. Reports of fatal signals
// (fatal_signals.h) and of progress read it, so it is global and has a fixed size; writing it takes
// a few plain stores.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

namespace trireme::base {

// What a rank is doing. Others may conclude that it hangs only from a phase with a limit: one of
// steps that take about equally long.
struct ActivityPhase {
  const char* name;
  bool has_limit = false;
};
inline constexpr ActivityPhase step_phase{"step", true}, warm_up_phase{"warm-up"},
    data_phase{"data"}, compile_phase{"compile"}, other_phase{"other"};

// Work that a thread queues for a device, which does it later.
class QueuedWork {
 public:
  struct Count {
    int64_t queued = 0, done = 0;  // pieces of steps
    int64_t steps = 0;             // that are done

    bool is_pending() const { return done < queued; }
  };
  virtual ~QueuedWork() = default;
  // Any thread. Waits for nothing, whatever the device and other threads do.
  virtual Count count() const = 0;
};

class alignas(64) RankActivity {
 public:
  struct Op {
    const char* name = nullptr;  // null: none yet
    int64_t m = 0, n = 0, k = 0;
  };

  // Returns the activity of the calling thread: that of its RankActivityScope; threads without one
  // share an activity without a rank.
  static RankActivity& current() noexcept;
  // Returns the activities of all scopes, of which those with rank() < 0 are free.
  static std::span<const RankActivity> all() noexcept;

  // For one writer at a time; any thread may read, and a reader may see parts of two calls.
  void set_step(int64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
  // `name` ends with a zero byte and exists as long as the process. Sizes that are 0 are not
  // reported.
  void set_op(const char* name, int64_t m = 0, int64_t n = 0, int64_t k = 0) noexcept {
    op_.store(name, std::memory_order_relaxed);
    m_.store(m, std::memory_order_relaxed);
    n_.store(n, std::memory_order_relaxed);
    k_.store(k, std::memory_order_relaxed);
    ops_.store(ops_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // This object is asked for work() until it is removed; only the newest one is.
  void set_work(const QueuedWork& work);
  // Waits for a call of work() in progress. Does nothing if another one was set since.
  void remove_work(const QueuedWork& work);
  // None: the thread queues no work, or its steps are not counted.
  std::optional<QueuedWork::Count> work() const;

  // Returns the number of calls of set_op().
  uint64_t ops() const noexcept { return ops_.load(std::memory_order_relaxed); }
  // Null: no phase was ever published.
  const ActivityPhase* phase() const noexcept { return phase_.load(std::memory_order_relaxed); }

  int rank() const noexcept { return rank_.load(std::memory_order_relaxed); }      // -1: unknown
  int64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }  // 0: none yet
  Op op() const noexcept {
    return {op_.load(std::memory_order_relaxed), m_.load(std::memory_order_relaxed),
            n_.load(std::memory_order_relaxed), k_.load(std::memory_order_relaxed)};
  }

 private:
  friend class RankActivityScope;
  friend class ActivityPhaseScope;

  std::atomic<int> rank_{-1};
  std::atomic<int64_t> step_{0};
  std::atomic<const char*> op_{nullptr};
  std::atomic<int64_t> m_{0}, n_{0}, k_{0};
  std::atomic<uint64_t> ops_{0};
  std::atomic<const ActivityPhase*> phase_{nullptr};
  mutable std::mutex work_mutex_;  // guards work_, and is held while it is used
  const QueuedWork* work_ = nullptr;
};

// The rank of the calling thread is in a phase until the destructor. `phase` exists as long as the
// process.
class ActivityPhaseScope {
 public:
  explicit ActivityPhaseScope(const ActivityPhase& phase) noexcept
      : activity_(RankActivity::current()), before_(activity_.phase_.exchange(&phase)) {}
  ~ActivityPhaseScope() { activity_.phase_ = before_ != nullptr ? before_ : &other_phase; }
  ActivityPhaseScope(const ActivityPhaseScope&) = delete;
  ActivityPhaseScope& operator=(const ActivityPhaseScope&) = delete;

 private:
  RankActivity& activity_;
  const ActivityPhase* before_;
};

// The calling thread works for a rank until the destructor. Threads that it starts with
// start_thread() work for the same rank, and so do workers of a ThreadPool during its jobs.
class RankActivityScope {
 public:
  explicit RankActivityScope(int rank) noexcept;
  ~RankActivityScope();
  RankActivityScope(const RankActivityScope&) = delete;
  RankActivityScope& operator=(const RankActivityScope&) = delete;

 private:
  RankActivity* before_;
  RankActivity* own_;
};

// The calling thread works for the rank of another thread until the destructor.
class SharedActivityScope {
 public:
  explicit SharedActivityScope(RankActivity& of_other) noexcept;
  ~SharedActivityScope();
  SharedActivityScope(const SharedActivityScope&) = delete;
  SharedActivityScope& operator=(const SharedActivityScope&) = delete;

 private:
  RankActivity* before_;
};

}  // namespace trireme::base
