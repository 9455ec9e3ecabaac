// SPDX-License-Identifier: Apache-2.0
// How figures of 8-bit numbers are recorded: as metrics, as a record of numerics.bin, as a log
// line.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "obs/files/table_file.h"
#include "obs/sinks/metric_sink.h"
#include "train/numerics/numerics_figures.h"

namespace trireme::train {

struct NumericsMetrics {
  std::vector<std::string> names;
  std::vector<double> values;
  std::vector<obs::Metric> metrics() const;  // views of the names
};
// Returns the largest magnitude of every matrix ("numerics/blocks.3/act/amax") and, of measured
// steps, the worst block of each matrix: "numerics/act/" with flushed, saturated, snr_db and
// headroom_bits.
NumericsMetrics numerics_metrics(std::span<const LayerFigures> layers);

// numerics.bin: a row for each matrix of the given layers ("blocks.3 act").
obs::TableShape numerics_shape(std::span<const int> layers);
// Returns the values of a record. Layers that have no figures, and columns that were not measured,
// are NaN.
std::vector<float> numerics_values(std::span<const int> layers,
                                   std::span<const LayerFigures> figures);

// Returns the log line of a measured step: the matrices that lose most. Empty if nothing was
// measured.
std::string numerics_line(std::span<const LayerFigures> layers);

}  // namespace trireme::train
