// SPDX-License-Identifier: Apache-2.0
// RunPrediction: what the planner and the plan predict about a run, before its first step:
// prediction.json of the run's folder. The summary of the run compares its steps with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "config/config.h"
#include "plan/price/price.h"
#include "spec/machine.h"

namespace trireme::train {

struct Incarnation;

// The machine files of a run.
struct MachineFiles {
  std::optional<spec::Machine> configured;     // system.machine
  std::vector<std::filesystem::path> folders;  // searched for the file that names the hardware
};

struct RunPrediction {
  std::string machine;                   // whose file was used; empty: none
  std::string why;                       // why no time is predicted; empty: it is
  double seconds = 0;                    // of a step
  double band = 0;                       // relative, each way
  std::vector<double> terms;             // by plan::Term; they sum to `seconds`
  std::vector<double> stage_seconds;     // compute of a step, by rank along pp
  std::optional<double> price_per_hour;  // dollars of one device

  bool has_time() const { return why.empty(); }
};

// Predicts for the configured machine, or if there is none for the machine whose file names
// `hardware`.
RunPrediction predict_run(const config::Config&, const std::string& hardware, const MachineFiles&);
// Returns the content of prediction.json: `prediction`, and what the plan of the run predicts.
base::Json prediction_json(const RunPrediction& prediction, const Incarnation& parts);

}  // namespace trireme::train
