// SPDX-License-Identifier: Apache-2.0
#include "cli/run/step_prediction_text.h"

#include <fmt/format.h>

namespace trireme::cli {

std::string to_text(const train::StepPrediction& step) {
  std::string text = fmt::format(
      "step: {:.4g} s predicted from {}, {:.4g} s measured, {:+.1f} %; band +-{:.0f} %\n",
      step.predicted, step.machine, step.measured, 100 * step.gap(), 100 * step.band);
  for (size_t i = 0; i < step.causes.size(); ++i) {
    text +=
        fmt::format("{} {}. {}\n",
                    i == 0 ? "warning: the difference is outside the band. Possible causes:" : "  ",
                    i + 1, step.causes[i]);
  }
  return text;
}

}  // namespace trireme::cli
