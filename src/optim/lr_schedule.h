// SPDX-License-Identifier: Apache-2.0
// Learning rate as a pure function of the step.
#pragma once

#include <cstdint>

namespace trireme::optim {

enum class Decay : uint8_t {
  constant,
  linear,
  cosine,
  wsd,  // warm-up, stable, decay: constant until the last `decay_ratio` of all steps, then linear
};

struct LrSchedule {
  Decay decay = Decay::constant;
  double peak = 3e-4;
  int64_t warmup_steps = 0;  // linear from peak / warmup_steps at step 0
  int64_t total_steps = 0;   // REQUIRES: > warmup_steps unless constant
  double min_factor = 0;     // of peak, reached at total_steps and constant afterwards
  double decay_ratio = 0.2;  // wsd only, of total_steps
};

// Throws ConfigError with the field, its value and the rule.
void check(const LrSchedule&);

// `step` counts from 0.
double learning_rate(const LrSchedule&, int64_t step);

}  // namespace trireme::optim
