// SPDX-License-Identifier: Apache-2.0
// How a run begins, and resumes, with a loss scale (kernels/loss_scale.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/loss_scale.h"
#include "spec/plan.h"

namespace trireme::engine {

struct LossScaleOptions {
  float fixed = 0;  // above 0: the scale, which never changes
  float initial = 65536;
  float min = 1;
  int64_t growth_interval = 2000;
  int32_t hysteresis = 2;
};

// Returns the rule of a plan; none unless its recipe has a loss scale.
inline kernels::LossScaleRule loss_scale_rule(const spec::Plan& plan, const LossScaleOptions& o) {
  if (!plan.recipe.has_loss_scale() || plan.inference) return {};
  const auto tokens = static_cast<uint64_t>(std::max<int64_t>(1, plan.microbatch_tokens()));
  return {.divisor = static_cast<float>(std::bit_floor(tokens)),
          .is_fixed = o.fixed > 0,
          .min = o.min,
          .growth_interval = o.growth_interval,
          .hysteresis = o.hysteresis};
}

// Returns the state as the next step needs it: with the scale that it carries, if it carries one
// and the scale is not fixed. The divisor and the options may be others than when it was saved.
inline kernels::StepState with_loss_scale(kernels::StepState state,
                                          const kernels::LossScaleRule& rule,
                                          const LossScaleOptions& o) {
  if (!rule.is_on()) return state;
  if (rule.is_fixed) {
    state.loss_scale = o.fixed;
  } else if (state.loss_scale > 0) {
    state.loss_scale = std::clamp(state.loss_scale, rule.min, rule.max);
    state.hysteresis_left = std::clamp(state.hysteresis_left, 0, rule.hysteresis);
  } else {
    state.loss_scale = std::clamp(o.initial, rule.min, rule.max);
    state.hysteresis_left = rule.hysteresis;
    state.good_steps = 0;
  }
  state.loss_factor = state.loss_scale / rule.divisor;
  return state;
}

}  // namespace trireme::engine
