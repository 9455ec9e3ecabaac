// SPDX-License-Identifier: Apache-2.0
// Whole steps of small models, timed: what the operations of a step take together is not what each
// takes by itself.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "plan/job.h"

namespace trireme::train {

struct ReferenceStep {
  plan::Job job;
  spec::Layout layout;
  double seconds = 0;
};
// On a platform of its own, made for `system`. `done` is told each model.
std::vector<ReferenceStep> reference_steps(const config::System& system, bool is_quick,
                                           const std::function<void(std::string_view)>& done);

}  // namespace trireme::train
