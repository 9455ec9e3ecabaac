// SPDX-License-Identifier: Apache-2.0
// Turns: lets tasks of a thread pool add to the same sums in one fixed order, so that the bits of a
// sum do not depend on the number of threads, without a copy of the sums for each task.
//
// The sums are cut into zones. Tasks 0, 1, 2, ... each add to a range of zones; in every zone a
// task's turn comes when all earlier tasks of that zone have passed it on. A task only waits for
// earlier ones. ThreadPool::for_each starts tasks in ascending order, so these are running or done,
// and no task waits forever. Tasks follow each other through the zones at a distance of one or two.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "kernels/cpu/block_product.h"

namespace trireme::kernels::cpu {

class Turns {
 public:
  // `rounds` times the tasks of one round: task i adds to zones_of_round[i % size]. The span must
  // outlive this object.
  Turns(std::span<const InnerRange> zones_of_round, int64_t rounds, int64_t zones)
      : zones_of_round_(zones_of_round),
        tasks_(static_cast<int32_t>(rounds * std::ssize(zones_of_round))) {
    for (int64_t zone = 0; zone < zones; ++zone) next_.push_back(first_from(0, zone));
  }

  InnerRange zones_of(int64_t task) const {
    return zones_of_round_[static_cast<size_t>(task) % zones_of_round_.size()];
  }

  // REQUIRES: the zone is in zones_of(task).
  void wait(int64_t task, int64_t zone) {
    const std::atomic_ref<int32_t> next(next_[static_cast<size_t>(zone)]);
    while (next.load(std::memory_order_acquire) != task) std::this_thread::yield();
  }
  // REQUIRES: the task has waited for its turn. Each task passes each of its zones on, once.
  void pass(int64_t task, int64_t zone) {
    const std::atomic_ref<int32_t> next(next_[static_cast<size_t>(zone)]);
    next.store(first_from(static_cast<int32_t>(task) + 1, zone), std::memory_order_release);
  }

 private:
  // The first of the tasks from `task` on that adds to the zone; tasks_ if there is none.
  int32_t first_from(int32_t task, int64_t zone) const {
    for (; task < tasks_; ++task) {
      const InnerRange zones = zones_of(task);
      if (zones.begin <= zone && zone < zones.end) break;
    }
    return task;
  }

  std::span<const InnerRange> zones_of_round_;
  int32_t tasks_;
  std::vector<int32_t> next_;  // of each zone: the task whose turn it is
};

}  // namespace trireme::kernels::cpu
