// SPDX-License-Identifier: Apache-2.0
#include "train/batches/leg.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::train {

const Leg& leg_at(std::span<const Leg> legs, int64_t step) {
  TRIREME_CHECK(!legs.empty(), "a run without legs at step {}", step);
  const auto found =
      std::ranges::find_if(legs, [&](const Leg& leg) { return step <= leg.last_step; });
  return found == legs.end() ? legs.back() : *found;
}

int64_t samples_until(std::span<const Leg> legs, int64_t step) {
  if (step <= 0) return 0;
  const Leg& leg = leg_at(legs, step);
  return step * leg.global_batch_size + leg.shift;
}

int64_t tokens_until(std::span<const Leg> legs, int64_t step) {
  int64_t tokens = 0;
  for (const Leg& leg : legs) {
    const int64_t last = &leg == &legs.back() ? step : std::min(step, leg.last_step);
    tokens += std::max<int64_t>(0, last - leg.first_step + 1) * leg.step_tokens();
  }
  return tokens;
}

}  // namespace trireme::train
