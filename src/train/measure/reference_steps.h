// SPDX-License-Identifier: Apache-2.0
// Whole steps of small models, timed: what the operations of a step take together is not what each
// takes by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "plan/calibrate/step_factor.h"

namespace trireme::train {

constexpr int64_t reference_step_count = 2;
// On a platform of its own, made for `system`. `done` is told each model.
std::vector<plan::TimedStep> reference_steps(const config::System& system, bool is_quick,
                                             const std::function<void(std::string_view)>& done);

}  // namespace trireme::train
