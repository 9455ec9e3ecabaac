// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text/json_fwd.h"
#include "train/measure/step_bench.h"

namespace trireme::cli {

// Prints what `bench train` measured. REQUIRES: `json` is train::to_json() of the same result.
void print_bench(const train::StepBench&, const train::StepBenchPeaks&, const base::Json& json);

}  // namespace trireme::cli
