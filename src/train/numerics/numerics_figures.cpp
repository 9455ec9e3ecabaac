// SPDX-License-Identifier: Apache-2.0
#include "train/numerics/numerics_figures.h"

#include <algorithm>
#include <cmath>

namespace trireme::train {
namespace {

// The logarithm of the ratio of a format's largest value to its smallest normal one
// (base/float8.h).
double normal_range_bits(base::DType format) {
  return format == base::DType::f8e4m3 ? std::log2(448.0) + 6 : std::log2(57344.0) + 14;
}

// The order of the sums of squares depends on the ranks, and on a GPU on the run: their last places
// differ. Rounding removes that, and is far finer than what matters.
double rounded_figure(double figure) {
  constexpr double steps = 1024;
  return std::round(figure * steps) / steps;
}

}  // namespace

RoleFigures figures_of(const RoleCounts& counts, base::DType format) {
  RoleFigures figures{.amax = counts.amax};
  if (counts.values == 0) return figures;
  const auto values = static_cast<double>(counts.values);
  figures.is_measured = true;
  figures.flushed = static_cast<double>(counts.flushed) / values;
  figures.saturated = static_cast<double>(counts.saturated) / values;
  figures.snr_db = max_snr_db;
  if (counts.signal > 0 && counts.noise > 0) {
    figures.snr_db =
        std::min(max_snr_db, rounded_figure(10 * std::log10(counts.signal / counts.noise)));
  }
  const double rms = std::sqrt(counts.signal / values);
  if (rms > 0 && counts.amax > 0 && std::isfinite(counts.amax)) {
    figures.headroom_bits =
        rounded_figure(normal_range_bits(format) - std::log2(counts.amax / rms));
  }
  return figures;
}

}  // namespace trireme::train
