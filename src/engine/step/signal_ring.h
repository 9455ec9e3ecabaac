// SPDX-License-Identifier: Apache-2.0
// SignalRing: the way of a step's signals to the host. After each step the device copies them to
// the next slot of page-locked memory; the host reads a slot after the device has passed the event
// that follows the copy. Neither waits for the other, unless all slots are in flight.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device/device.h"
#include "engine/step/step_signals.h"

namespace trireme::engine {

class SignalRing {
 public:
  static constexpr int64_t slots = 64;

  SignalRing(device::Device&, int64_t layers, int64_t data_ranks);

  // Queues the copy of the signals of the step that was queued last (spec::StepMemory::signals).
  // If no slot is free, the signals of the oldest step are dropped.
  void push(device::Stream&, device::ConstTensor signals);
  // Returns the signals that have arrived since the last call, in order.
  std::vector<StepSignals> take(device::Stream&);

 private:
  std::byte* slot(int64_t step) const { return host_.data() + step % slots * slot_bytes_; }
  device::Event& arrival(int64_t step) { return arrivals_[static_cast<size_t>(step % slots)]; }
  StepSignals read(int64_t step) const;

  int64_t layers_, data_ranks_, bytes_, slot_bytes_;
  device::HostBuffer host_;
  std::array<device::Event, slots> arrivals_;
  int64_t pushed_ = 0, taken_ = 0;  // steps
};

}  // namespace trireme::engine
