// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/memory/copy_pace.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trireme::train {

void CopyPace::add(const CopyCost& cost) {
  if (!std::exchange(has_any_, true)) {
    mean_ = cost;
  } else {
    mean_.exposed_seconds = (mean_.exposed_seconds + cost.exposed_seconds) / 2;
    mean_.step_seconds = (mean_.step_seconds + cost.step_seconds) / 2;
  }
  const double allowed = cost_ * mean_.step_seconds;  // of each step
  if (mean_.exposed_seconds <= allowed) {
    open_ = 1;
  } else if (allowed * static_cast<double>(max_interval) <= mean_.exposed_seconds) {
    open_ = max_interval;
  } else {
    open_ = static_cast<int64_t>(std::ceil(mean_.exposed_seconds / allowed));
  }
}

}  // namespace trireme::train
