// SPDX-License-Identifier: Apache-2.0
// The peaks of a machine that is calibrated: those of a datasheet, or fitted ones.
#pragma once

#include <optional>
#include <string>

#include "plan/validate/fit_machine.h"
#include "spec/machine.h"

namespace trireme::plan {

struct StatedPeak {
  double per_second = 0;  // FLOPs, or bytes
  std::string source;
};
struct StatedPeaks {
  std::optional<StatedPeak> bf16_flops, fp32_flops, bandwidth;
};

// Sets the peaks of bf16 and of memory. A peak that no datasheet states starts at twice the fastest
// measured time, so that it does not limit fit_machine().
void start_peaks(const StatedPeaks&, const Times&, spec::Machine&);

// To be called after fit_machine(): a peak that no datasheet states becomes what products, or
// streams, reach in the fit, and their reach 1. `has_own_fp32`: fp32 has its own peak, as on a GPU;
// otherwise that of bf16.
void settle_peaks(const StatedPeaks&, bool has_own_fp32, spec::Machine&);

}  // namespace trireme::plan
