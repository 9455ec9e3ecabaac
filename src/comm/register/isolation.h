// SPDX-License-Identifier: Apache-2.0
// Isolation: whether a supervisor must stop its ranks because it is cut off from its run. It must
// when it has received nothing from the register and nothing from the coordinator for `isolate_s`.
// One of the two suffices to go on: a register that is away for a while must not stop healthy
// ranks. This bounds how long two processes compute the same steps; that a process of an earlier
// epoch changes nothing is ensured by the register (run_record.h), not by time.
//
// Pure: callers give the time, in seconds of a clock that cannot be set and that counts suspended
// time (CLOCK_BOOTTIME). A supervisor handles what has arrived before it calls must_stop(): after
// its process was paused, messages wait. The coordinator counts messages of its members as those of
// the coordinator; otherwise it would never stop.
#pragma once

#include <algorithm>

namespace trireme::comm {

class Isolation {
 public:
  static constexpr double default_isolate_s = 30;

  Isolation(double isolate_s, double now)
      : isolate_s_(isolate_s), register_at_(now), coordinator_at_(now) {}

  void heard_register(double now) { register_at_ = std::max(register_at_, now); }
  void heard_coordinator(double now) { coordinator_at_ = std::max(coordinator_at_, now); }

  // For the messages that a supervisor prints while it waits.
  double register_silence(double now) const { return std::max(0.0, now - register_at_); }
  double coordinator_silence(double now) const { return std::max(0.0, now - coordinator_at_); }

  bool must_stop(double now) const {
    return register_silence(now) >= isolate_s_ && coordinator_silence(now) >= isolate_s_;
  }

 private:
  double isolate_s_;
  double register_at_, coordinator_at_;  // of the last message
};

}  // namespace trireme::comm
