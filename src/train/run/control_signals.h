// SPDX-License-Identifier: Apache-2.0
// ControlSignals: what a run is asked for from outside, to stop or to save. With several ranks one
// rank's request is everybody's: they tell each other about once a second, between steps, at steps
// that all know beforehand.
#pragma once

#include <atomic>
#include <cstdint>

#include "train/setup/rank.h"

namespace trireme::train {

struct Request {
  bool stop = false, save = false;
  bool is_fenced = false;  // another process has taken the run's folder over
};

class ControlSignals {
 public:
  // Flags that signal handlers set; may be null. `save` is cleared when the request was accepted.
  ControlSignals(const std::atomic<bool>* stop, std::atomic<bool>* save);

  // Must ranks settle after this step at the latest? Earlier is allowed, if all do. The same on all
  // ranks; alone, after every step.
  bool is_due(int64_t step) const { return step >= next_step_; }
  // REQUIRES: step is above that of the last call. Collective.
  Request settle(Rank&, int64_t step, bool is_fenced);

 private:
  const std::atomic<bool>* stop_;
  std::atomic<bool>* save_;
  double settled_seconds_;
  int64_t settled_step_ = 0, next_step_ = 1;
};

}  // namespace trireme::train
