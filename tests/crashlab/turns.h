// SPDX-License-Identifier: Apache-2.0
// Ranks that write concurrently in an order determined by a seed: each on a thread, one disk
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

  // Calls task(disk) of all tasks concurrently; every operation on the disk they receive waits for
  // its turn and is forwarded to `disk`. Returns when all have ended and rethrows the first
  // exception.
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
  size_t turn_ = 0;  // of the task that may proceed
};

}  // namespace trireme::crashlab
