// SPDX-License-Identifier: Apache-2.0
// What a run says about itself before it starts: model, batch, plan, device, and what its
// utilisation refers to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/report/peaks.h"
#include "train/setup/setup.h"

namespace trireme::train {

struct RunPeaks {
  std::optional<Peak> flops;  // that MFU refers to; none: MFU is not reported
  std::optional<Peak> gemm;   // measured here; GPUs only
};
// Given, from the datasheet, or, on a GPU that is in no table, measured. REQUIRES: a device on
// which nothing is allocated yet, and which the plan fits.
RunPeaks find_peaks(Platform&, const spec::Plan&, double given_tflops);

std::vector<std::string> describe_run(const spec::ModelSpec&, const spec::Plan&, const Platform&,
                                      const RunPeaks&);

// Of all ranks.
int64_t step_tokens(const spec::Plan&);

// Ledger, library memory and what the driver reports, side by side.
std::string memory_line(int64_t ledger_bytes, int64_t driver_bytes);

}  // namespace trireme::train
