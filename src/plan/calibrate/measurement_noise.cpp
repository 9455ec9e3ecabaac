// SPDX-License-Identifier: Apache-2.0
#include "plan/calibrate/measurement_noise.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::plan {

std::string clamp_noise(spec::Machine& m) {
  // The ranges of these keys in a machine file.
  constexpr double max_time_error = 1, min_step_factor = 0.5, max_step_factor = 5;
  const double time_error = m.time_error, step_factor = m.step_factor;
  m.time_error = std::min(time_error, max_time_error);
  m.step_factor = std::clamp(step_factor, min_step_factor, max_step_factor);
  if (m.time_error == time_error && m.step_factor == step_factor) return "";
  return fmt::format(
      "the machine was busy: whole steps took {:.2g} times what their operations predict, to "
      "within "
      "{:.0f} %; assumed {:.2g} and {:.0f} %, the limits of a machine file. Measure again when the "
      "machine is idle",
      step_factor, 100 * time_error, m.step_factor, 100 * m.time_error);
}

}  // namespace trireme::plan
