// SPDX-License-Identifier: Apache-2.0
#include "train/record/step_alarm.h"

#include "base/text/json.h"

namespace trireme::train {

std::optional<StepAlarm> alarm_of(const obs::Event& event) {
  const auto what = event.data.find("what");
  if (what == event.data.end()) return {};
  if (event.kind == obs::EventKind::numerics && *what == "alarm") {
    return StepAlarm{"numerics", event.text};
  }
  if (event.kind == obs::EventKind::hardware && *what == "repeated_step") {
    return StepAlarm{"repeated_step", event.text};
  }
  return {};
}

}  // namespace trireme::train
