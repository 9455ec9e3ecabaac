// SPDX-License-Identifier: Apache-2.0
#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/error.h"

namespace trireme::optim {
namespace {

// 0 before `begin`, 1 from `end` on, linear between.
double progress(int64_t step, double begin, double end) {
  if (end <= begin) return static_cast<double>(step) >= end ? 1 : 0;
  return std::clamp((static_cast<double>(step) - begin) / (end - begin), 0.0, 1.0);
}

}  // namespace

void check(const LrSchedule& s) {
  if (!(s.peak > 0)) throw base::ConfigError(fmt::format("lr = {}: must be positive", s.peak));
  if (s.warmup_steps < 0) {
    throw base::ConfigError(fmt::format("warmup_steps = {}: must not be negative", s.warmup_steps));
  }
  if (!(s.min_factor >= 0 && s.min_factor <= 1)) {
    throw base::ConfigError(fmt::format("min_lr_factor = {}: must be from 0 to 1", s.min_factor));
  }
  if (s.decay == Decay::constant) return;
  if (s.total_steps <= s.warmup_steps) {
    throw base::ConfigError(fmt::format("total_steps = {}: must be above warmup_steps = {}",
                                        s.total_steps, s.warmup_steps));
  }
  if (s.decay == Decay::wsd && !(s.decay_ratio > 0 && s.decay_ratio <= 1)) {
    throw base::ConfigError(
        fmt::format("decay_ratio = {}: must be above 0 and at most 1", s.decay_ratio));
  }
}

double learning_rate(const LrSchedule& s, int64_t step) {
  TRIREME_CHECK(step >= 0, "step {}", step);
  if (step < s.warmup_steps) {
    return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
  }
  const auto warmup = static_cast<double>(s.warmup_steps);
  const auto total = static_cast<double>(s.total_steps);
  double kept = 1;  // fraction of the range from min_factor to 1
  switch (s.decay) {
    case Decay::constant:
      return s.peak;
    case Decay::linear:
      kept = 1 - progress(step, warmup, total);
      break;
    case Decay::cosine:
      kept = 0.5 * (1 + std::cos(std::numbers::pi * progress(step, warmup, total)));
      break;
    case Decay::wsd:
      kept = 1 - progress(step, std::max(warmup, total * (1 - s.decay_ratio)), total);
      break;
  }
  return s.peak * (s.min_factor + (1 - s.min_factor) * kept);
}

}  // namespace trireme::optim
