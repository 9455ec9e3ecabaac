// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "train/report/step_prediction.h"

namespace trireme::cli {

// The predicted and the measured time of a step in one line, and a warning with likely causes if
// they differ by more than the band.
std::string to_text(const train::StepPrediction&);

}  // namespace trireme::cli
