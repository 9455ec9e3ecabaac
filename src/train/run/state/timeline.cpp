// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/timeline.h"

#include "base/check.h"

namespace trireme::train {

void Timeline::begin_after(int64_t step, int64_t samples, int64_t tokens) {
  step_ = step;
  first_step_ = step + 1;
  shift_ = samples - samples_until(legs_, step);
  more_tokens_ = tokens - tokens_until(legs_, step);
  earlier_steps_ = taken_signals_ = engine_steps_;
}

void Timeline::advance() {
  ++step_;
  ++engine_steps_;
}

void Timeline::go_back(int64_t to) {
  TRIREME_CHECK(to >= first_step_ && to <= step_ + 1, "back to step {} of {} to {}", to,
                first_step_, step_);
  step_ = to - 1;
  engine_replaced();
}

}  // namespace trireme::train
