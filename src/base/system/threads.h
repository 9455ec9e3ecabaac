// SPDX-License-Identifier: Apache-2.0
// ThreadPool: runs the tasks 0..count-1 of a job on a fixed set of threads. The assignment of
// tasks to threads is not fixed, so a task must write only data of its index; then results do not
// depend on the number of threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/system/rank_activity.h"

namespace trireme::base {

class ThreadPool {
 public:
  // `threads` includes the caller of for_each, which always works, too: 1 starts no thread. If the
  // system refuses some, the pool logs a warning and uses the others. REQUIRES: threads >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(i) for every i in [0, count), returns when all are done. May be called from several
  // threads at once. Tasks must not throw and must not call for_each of the same pool. They start
  // in ascending order and run without interruption, so a task may wait for an earlier one.
  template <typename Task>
  void for_each(int64_t count, Task&& task) {
    using Body = std::remove_reference_t<Task>;
    run(
        count, [](void* body, int64_t index) { (*static_cast<Body*>(body))(index); },
        const_cast<void*>(static_cast<const void*>(&task)));
  }

 private:
  using Call = void (*)(void* body, int64_t index);
  struct Job {
    Call call;
    void* body;
    int64_t count;
    RankActivity& activity;  // of the caller
    std::atomic<int64_t> next{0};
    int helpers = 0;  // workers inside work(); guarded by mutex_
  };

  void run(int64_t count, Call call, void* body);
  static void work(Job& job);
  void serve();
  Job* open_job() const;  // REQUIRES: mutex_ held

  std::mutex mutex_;  // guards jobs_, Job::helpers and stopping_
  std::condition_variable wake_;
  std::condition_variable left_;
  std::vector<Job*> jobs_;
  bool stopping_ = false;
  std::atomic<uint32_t> posted_{
      0};  // incremented with every new job, so that idle workers may check without the lock
  std::vector<std::thread> workers_;
};

}  // namespace trireme::base
