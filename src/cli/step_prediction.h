// SPDX-License-Identifier: Apache-2.0
// The time of a step that was measured beside the one that the planner predicts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "config/config.h"
#include "train/trainer.h"

namespace trireme::cli {

struct StepPrediction {
  std::string machine;
  double predicted = 0, measured = 0;  // seconds
  double band = 0;                     // relative, each way
  std::vector<std::string> causes;     // outside the band: what may be the reason, likeliest first

  double gap() const { return measured / predicted - 1; }
};
// None: no machine file is of this hardware, or too few steps were timed. Throws where
// system.machine names none.
std::optional<StepPrediction> step_prediction(const config::Config&, const train::TrainSummary&);

std::string to_text(const StepPrediction&);
base::Json to_json(const StepPrediction&);

}  // namespace trireme::cli
