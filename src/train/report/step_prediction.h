// SPDX-License-Identifier: Apache-2.0
// Compares the measured time of a step with the planner's prediction.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "config/config.h"
#include "spec/machine.h"
#include "train/run/trainer.h"

namespace trireme::train {

struct StepPrediction {
  std::string machine;
  double predicted = 0, measured = 0;  // seconds
  double band = 0;                     // relative, each way
  std::vector<std::string> causes;     // possible causes if outside the band, likeliest first

  double gap() const { return measured / predicted - 1; }
};
// Returns the machine that system.machine names, if it names one, from the files in `folders`.
// Throws ConfigError if there is no such file or it is wrong: to be called before the run.
std::optional<spec::Machine> configured_machine(const config::Config&,
                                                const std::vector<std::filesystem::path>& folders);
// Compares with the prediction of the summary, or predicts now if it has none. Returns nothing if
// too few steps were timed, if no machine file names the hardware, or if the planner cannot price
// the run on the machine; logs the reason in the last case.
std::optional<StepPrediction> step_prediction(const config::Config&, const TrainSummary&,
                                              const MachineFiles&);
base::Json to_json(const StepPrediction&);

}  // namespace trireme::train
