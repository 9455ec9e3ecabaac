// SPDX-License-Identifier: Apache-2.0
// The end of a run: its exit code, its JSON object and its text.
#pragma once

#include <string>

#include "base/text/json_fwd.h"
#include "train/run/trainer.h"

namespace trireme::cli {

int exit_code_of(const train::TrainSummary&);

base::Json summary_json(const train::TrainSummary&);
void print_summary(const train::TrainSummary&, bool with_curve);

}  // namespace trireme::cli
