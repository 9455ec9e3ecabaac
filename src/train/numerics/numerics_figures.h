// SPDX-License-Identifier: Apache-2.0
// What one step did to the values that its products read in 8 bits: for each quantised matrix of a
// block the largest magnitude and, in measured steps, shares and noise.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "spec/recipe.h"

namespace trireme::train {

struct RoleFigures {
  double amax = 0;           // largest magnitude; 0: no value was quantised
  bool is_measured = false;  // as are all below
  double flushed = 0;        // share of values that are not zero, but their code is
  double saturated = 0;      // share of finite values beyond the largest of the format
  double snr_db = 0;         // of codes times scales; max_snr_db if there is no noise
  // Bits by which the largest magnitude may grow until the root mean square of the values is below
  // the smallest normal number of the format.
  double headroom_bits = 0;
  bool operator==(const RoleFigures&) const = default;
};
constexpr double max_snr_db = 150;

struct LayerFigures {
  int layer = 0;  // of the model; blocks.i is layer i + 1
  std::array<RoleFigures, spec::quantized_count> by;
  bool operator==(const LayerFigures&) const = default;

  const RoleFigures& operator[](spec::Quantized role) const {
    return by[static_cast<size_t>(role)];
  }
  RoleFigures& operator[](spec::Quantized role) { return by[static_cast<size_t>(role)]; }
};

// The counts of a matrix, of all micro-batches and ranks of a step.
struct RoleCounts {
  double amax = 0;
  int64_t values = 0, flushed = 0, saturated = 0;
  double signal = 0, noise = 0;
};
// `format`: of the codes, f8e4m3 or f8e5m2.
RoleFigures figures_of(const RoleCounts&, base::DType format);

}  // namespace trireme::train
