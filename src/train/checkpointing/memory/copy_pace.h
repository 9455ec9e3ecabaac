// SPDX-License-Identifier: Apache-2.0
// CopyPace: after how many steps the state is copied to memory again. Pure.
#pragma once

#include <cstdint>

namespace trireme::train {

// What one copy has cost, on the rank where it cost most.
struct CopyCost {
  double exposed_seconds = 0;  // for which it delayed the step
  double step_seconds = 0;     // of a step
};

class CopyPace {
 public:
  // `interval`: steps, fixed; 0: the smallest at which copies delay steps by at most `cost` of
  // their time.
  CopyPace(int64_t interval, double cost) : fixed_(interval), cost_(cost) {}

  // Adds a copy; with an open interval this sets it. Later copies count as much as all before, so
  // that the first one, which also maps the memory, is soon forgotten.
  void add(const CopyCost&);
  // Steps from one copy to the next; before the first copy: 1.
  int64_t interval() const { return fixed_ > 0 ? fixed_ : open_; }

  // Steps until a copy that was skipped is tried again.
  int64_t retry() const { return fixed_ > 0 ? 1 : open_; }

  static constexpr int64_t max_interval = 1'000'000;

 private:
  int64_t fixed_;
  double cost_;
  int64_t open_ = 1;
  bool has_any_ = false;
  CopyCost mean_;
};

}  // namespace trireme::train
