// SPDX-License-Identifier: Apache-2.0
// The time of a step that was measured beside the one that the planner predicts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "config/config.h"
#include "spec/machine.h"
#include "train/run/trainer.h"

namespace trireme::cli {

struct StepPrediction {
  std::string machine;
  double predicted = 0, measured = 0;  // seconds
  double band = 0;                     // relative, each way
  std::vector<std::string> causes;     // outside the band: what may be the reason, likeliest first

  double gap() const { return measured / predicted - 1; }
};
// The machine that system.machine names; none: it names none. Throws where there is no such file,
// or a wrong one: to be called before the run.
std::optional<spec::Machine> asked_machine(const config::Config&);

// From the machine that was asked for, or the one whose file names the run's hardware. None: there
// is no such file, or too few steps were timed.
std::optional<StepPrediction> step_prediction(const config::Config&, const train::TrainSummary&,
                                              const std::optional<spec::Machine>& asked);

std::string to_text(const StepPrediction&);
base::Json to_json(const StepPrediction&);

}  // namespace trireme::cli
