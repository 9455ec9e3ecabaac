// SPDX-License-Identifier: Apache-2.0
// StepAlarm: the numbers of a step may be wrong. Checkpoints of about that time are not marked good
// (checkpointing/marks/mark_watch.h).
#pragma once

#include <optional>
#include <string>

#include "obs/files/event.h"

namespace trireme::train {

struct StepAlarm {
  std::string detector;  // "divergence", "skip", "numerics" or "repeated_step"
  std::string text;
};

// Returns the alarm that an event of these kinds is: 8-bit numbers that drift, and a step that was
// repeated with another result. The others are alarms of steps, not of events.
std::optional<StepAlarm> alarm_of(const obs::Event&);

}  // namespace trireme::train
