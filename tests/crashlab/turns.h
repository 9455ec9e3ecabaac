// SPDX-License-Identifier: Apache-2.0
// Ranks that write at the same time, in an order that a seed gives: each on a thread, but one disk
// operation at a time.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "choices.h"
#include "ckpt/disk/disk.h"

namespace trireme::crashlab {

class Turns {
 public:
  explicit Turns(uint64_t seed) : dice_(seed) {}

  // Calls task(disk) of all at the same time; every operation on the disk they get waits for its
  // turn, and goes to `disk`. Returns when all have ended; what the first of them threw is thrown
  // again.
  void run(ckpt::Disk& disk, const std::vector<std::function<void(ckpt::Disk&)>>& tasks);

 private:
  friend class TurnDisk;
  friend class TurnFile;
  void wait(size_t task);
  void hand_on();  // REQUIRES: mutex_ held

  enum class State : uint8_t { busy, waiting, ended };
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  Dice dice_;
  std::vector<State> states_;
  size_t turn_ = 0;  // of the task that may go on
};

}  // namespace trireme::crashlab
