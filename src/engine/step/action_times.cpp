// SPDX-License-Identifier: Apache-2.0
#include "engine/step/action_times.h"

namespace trireme::engine {

void ActionTimes::start() {
  compute_.synchronize();
  marks_.assign(marks_.size(), {});
  origin_ = compute_.record_timed();
}

std::vector<ActionSpan> ActionTimes::finish() {
  compute_.synchronize();
  std::vector<ActionSpan> spans;
  for (const Mark& mark : marks_) {
    ActionSpan& span = spans.emplace_back();
    if (mark.begin.state() == nullptr) continue;
    span.begin = compute_.seconds_between(origin_, mark.begin);
    span.end =
        mark.end.state() == nullptr ? span.begin : compute_.seconds_between(origin_, mark.end);
  }
  return spans;
}

}  // namespace trireme::engine
