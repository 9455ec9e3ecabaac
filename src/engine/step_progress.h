// SPDX-License-Identifier: Apache-2.0
// StepProgress: how far the device is with the steps that the host has queued. The rank's
// heartbeats read it (comm/failure/motion.h): a host may go on queueing steps, or wait, while its
// device stands still.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/system/rank_activity.h"
#include "device/device.h"

namespace trireme::engine {

class StepProgress final : public base::QueuedWork {
 public:
  // It is the work of the calling thread's activity until the destructor. Counts nothing if the
  // stream cannot set numbers (device/stream_number.h). Must be destroyed before the device.
  explicit StepProgress(device::Stream& compute);
  ~StepProgress() override;
  StepProgress(const StepProgress&) = delete;
  StepProgress& operator=(const StepProgress&) = delete;

  // What the stream has queued until now is a piece of a step; it ends the step.
  void add_piece() { add(pieces_); }
  void end_step();
  // To be called after each launch of a captured step, and when a capture was given up.
  void launched();
  void drop_captured();

  Count count() const override;

 private:
  struct Number {
    int64_t* done = nullptr;          // in memory_
    std::atomic<int64_t> queued = 0;  // the number when all is done
    int64_t captured = 0;             // of it, by a graph that was not launched yet
  };
  void add(Number& number);

  device::Stream& compute_;
  base::RankActivity& activity_;
  std::optional<device::HostBuffer> memory_;
  Number pieces_, steps_;
};

}  // namespace trireme::engine
