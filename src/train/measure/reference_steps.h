// SPDX-License-Identifier: Apache-2.0
// Times whole steps of small models: the time of a step is not the sum of the times of its
// operations.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "plan/calibrate/step_factor.h"

namespace trireme::train {

constexpr int64_t reference_step_count = 2;
// Makes a new platform for `system` for each model. Calls `done` after each model; may be empty.
std::vector<plan::TimedStep> reference_steps(const config::System& system, bool is_quick,
                                             const std::function<void(std::string_view)>& done);

}  // namespace trireme::train
