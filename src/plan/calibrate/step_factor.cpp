// SPDX-License-Identifier: Apache-2.0
#include "plan/calibrate/step_factor.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "plan/price/price.h"
#include "plan/stack.h"

namespace trireme::plan {

void fit_step_factor(const std::vector<TimedStep>& steps, spec::Machine& m) {
  TRIREME_CHECK(!steps.empty(), "no steps");
  const auto count = static_cast<double>(steps.size());
  const auto ratios = [&] {
    std::vector<double> all;
    for (const TimedStep& step : steps) {
      all.push_back(step.seconds / Pricer(step.job, m, trireme_stack()).price(step.layout).seconds);
    }
    return all;
  };
  double sum = 0;
  for (const double ratio : ratios()) sum += std::log(ratio);
  m.step_factor = std::exp(sum / count);
  for (const double ratio : ratios()) m.residuals.step += std::abs(ratio - 1) / count;
  // Other models and layouts are predicted less well than those.
  m.time_error = std::max(0.05, 2 * m.residuals.step);
}

}  // namespace trireme::plan
