// SPDX-License-Identifier: Apache-2.0
// The loss scale of recipes that store activations in fp16, whose smallest number is 2^-24. The
// gradient of the logits is multiplied by scale / divisor, and step_control divides by that again.
// The scale falls after steps whose gradient is not finite, and grows after many good ones.
#pragma once

#include <cstdint>

#include "kernels/step_state.h"

namespace trireme::kernels {

struct LossScaleRule {
  // Gradients are those of the summed loss: the divisor, about the tokens of a micro-batch, makes
  // the scale comparable with one of a mean loss. A power of two, so that a change of the scale
  // changes no bit of a gradient that fp16 represents. 0: there is no loss scale.
  float divisor = 0;
  bool is_fixed = false;  // the scale never changes
  float growth = 2, backoff = 0.5F;
  float min = 1, max = 0x1p32F;
  int64_t growth_interval = 2000;  // good steps before the scale grows
  int32_t hysteresis = 2;  // steps that are not finite before it falls; then every one lowers it,
                           // until it grows again

  constexpr bool is_on() const { return divisor > 0; }
};

// Sets the scale of the next step after one with tokens. REQUIRES: rule.is_on().
constexpr void update_loss_scale(StepState& state, const LossScaleRule& rule, bool is_finite) {
  if (!is_finite) state.not_finite += 1;
  if (rule.is_fixed) return;
  if (is_finite) {
    state.good_steps += 1;
    if (state.good_steps < rule.growth_interval) return;
    const float grown = state.loss_scale * rule.growth;
    state.loss_scale = grown < rule.max ? grown : rule.max;
    state.hysteresis_left = rule.hysteresis;
  } else {
    if (state.hysteresis_left > 0) state.hysteresis_left -= 1;
    if (state.hysteresis_left == 0) {
      const float lowered = state.loss_scale * rule.backoff;
      state.loss_scale = lowered > rule.min ? lowered : rule.min;
    }
  }
  state.good_steps = 0;
  state.loss_factor = state.loss_scale / rule.divisor;
}

}  // namespace trireme::kernels
