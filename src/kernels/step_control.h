// SPDX-License-Identifier: Apache-2.0
// The body of the op step_control, shared by all back ends: it is scalar, and its decisions must
// not differ. So no contraction is left to the compiler: a product that is added is either exact or
// an explicit fma, and square roots and quotients are correctly rounded everywhere.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/args.h"
#include "kernels/step_state.h"
#include "kernels/wide_sum.h"

namespace trireme::kernels {

// The body of step_control: applies the rule stated at StepControlArgs; the tensors of `args` are
// not read. A skipped step has scale and limit 0; a step without valid tokens has
// mean loss and norm 0. Without clipping the limit is infinity.
//
// Device code may call constexpr functions, but sqrt and fma are constexpr only for some compilers.
// In a template the compiler does not check that before a constant expression calls it, which does
// not happen.
template <int = 0>
constexpr void close_step(StepSums& sums, StepState& state, const StepControlArgs& args,
                          bool is_aborted) {
  if (is_aborted || sums.unlike >= StepSums::aborted) {
    if (state.skip != StepSkip::torn) state.skip = StepSkip::closed;
    return;
  }
  const auto tokens = static_cast<double>(sums.tokens);
  const bool has_tokens = sums.tokens > 0;
  const bool is_scaled = args.loss_scale.is_on();
  state.step_scale = is_scaled ? state.loss_scale : 0;
  state.step_factor = is_scaled ? state.loss_factor : 1;
  const auto factor = static_cast<double>(state.step_factor);
  const double norm = has_tokens ? std::sqrt(to_double(sums.squares)) / tokens / factor : 0;

  state.tokens = sums.tokens;
  state.samples = sums.samples;
  state.unlike = sums.unlike;
  state.mean_loss = has_tokens ? sums.loss / tokens : 0;
  state.grad_norm = static_cast<float>(norm);
  state.overflow += sums.overflow;
  sums = StepSums{};
  if (state.overflow > 0) {
    state.skip = StepSkip::step;
    state.grad_scale = 0;
    state.clip_limit = 0;
    return;
  }

  const bool is_finite = norm < std::numeric_limits<double>::infinity();  // false for NaN, too
  if (is_scaled && has_tokens) update_loss_scale(state, args.loss_scale, is_finite);
  const bool warm = state.applied >= args.guard_warmup;
  const double guard = static_cast<double>(args.guard_multiple) * state.norm_mean;
  const bool above_guard = args.guard_multiple > 0 && warm && state.norm_mean > 0 && norm > guard;
  const bool skipped_enough = args.skip_row > 0 && state.skipped_in_a_row >= args.skip_row;
  if (!has_tokens || !is_finite || (above_guard && !skipped_enough)) {
    if (state.skipped_in_a_row == 0) {
      state.row_first = state.applied + state.skipped + 1;
      state.row_norm = norm;
      state.row_mean = state.norm_mean;
    }
    state.skip = StepSkip::step;
    state.grad_scale = 0;
    state.clip_limit = 0;
    state.skipped += 1;
    state.skipped_in_a_row += 1;
    return;
  }

  double limit = std::numeric_limits<double>::infinity();
  if (args.clip != ClipKind::none) limit = static_cast<double>(args.clip_norm);
  if (args.clip == ClipKind::adaptive && warm) {
    const double typical = state.norm_mean + 4 * std::sqrt(state.norm_variance);
    if (typical > limit) limit = typical;
  }
  if (above_guard && guard < limit) limit = guard;
  state.skip = StepSkip::none;
  state.clip_limit = static_cast<float>(limit);
  state.grad_scale = static_cast<float>((norm > limit ? limit / norm : 1) / tokens / factor);

  // Exponentially weighted mean and variance, updated together from the distance to the old mean.
  if (state.applied == 0) {
    state.norm_mean = norm;
    state.norm_variance = 0;
  } else {
    const auto decay = static_cast<double>(args.norm_decay);
    const double distance = norm - state.norm_mean;
    const double share = (1 - decay) * distance;
    state.norm_mean = std::fma(1 - decay, distance, state.norm_mean);
    state.norm_variance = decay * std::fma(share, distance, state.norm_variance);
  }
  state.applied += 1;
  state.skipped_in_a_row = 0;
}

}  // namespace trireme::kernels
