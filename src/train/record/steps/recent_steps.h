// SPDX-License-Identifier: Apache-2.0
// RecentSteps: what the last steps returned, as every rank has it, beside the record that the first
// rank writes. If that rank dies, the last lines die with it, although the run goes on from the
// step that the others have finished: they hand these steps to the first rank after it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "engine/step/step_signals.h"
#include "kernels/step_state.h"

namespace trireme::train {

class RecentSteps {
 public:
  static constexpr size_t max_steps = 256;

  void add(int64_t step, const engine::StepSignals& signals);
  bool has(int64_t step) const { return steps_.contains(step); }
  // Those of steps `first` to `last`, for steps_in().
  std::string text(int64_t first, int64_t last) const;

 private:
  std::map<int64_t, engine::StepSignals> steps_;
};

// Returns the signals of the last step as far as the training state has them: without norms of
// layers and of the update, and with the mean loss as that of every rank.
engine::StepSignals signals_of_state(const kernels::StepState&);

// Throws Json::exception if it is no text of RecentSteps.
std::map<int64_t, engine::StepSignals> steps_in(const std::string& text);

// Returns the step of the last line about a step in the metrics of a run's folder; 0: there is
// none.
int64_t last_recorded_step(const std::filesystem::path& run_folder);

}  // namespace trireme::train
