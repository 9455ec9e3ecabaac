// SPDX-License-Identifier: Apache-2.0
// The log lines that describe a run before it starts: model, batch, plan, device, and the peak that
// its utilisation refers to.
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
// Returns the given peak, that of the datasheet, or, for a GPU that is in no table, a measured one.
// REQUIRES: nothing is allocated on the device yet, and the plan fits.
RunPeaks find_peaks(Platform&, const spec::Plan&, double given_tflops);

std::vector<std::string> describe_run(const spec::ModelSpec&, const spec::Plan&, const Platform&,
                                      const RunPeaks&);

// Returns the tokens of one step, over all ranks.
int64_t step_tokens(const spec::Plan&);

// Compares the ledger and the library memory with the driver's report.
std::string memory_line(int64_t ledger_bytes, int64_t driver_bytes);

}  // namespace trireme::train
