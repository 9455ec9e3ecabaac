// SPDX-License-Identifier: Apache-2.0
#include "train/setup/asked_plan.h"

namespace trireme::train {

config::Config plan_for(const config::Config& asked, int world,
                        const std::optional<ResumePoint>& saved) {
  return config::solved(asked, world, saved ? saved_sums(*saved) : std::nullopt);
}

}  // namespace trireme::train
