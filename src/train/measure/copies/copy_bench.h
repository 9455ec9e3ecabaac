// SPDX-License-Identifier: Apache-2.0
// What copies of the state in memory cost: windows of steps without and with them in turn, in one
// process, so that clocks and temperature of the device change both alike.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/text/json_fwd.h"
#include "train/setup/setup.h"

namespace trireme::train {

// The median of some values, and an interval that contains that of their distribution with a
// probability of at least 95 %, whatever the distribution: between two of the sorted values. Fewer
// than six values have no such interval: it is from the smallest to the largest one.
struct MedianInterval {
  double median = 0, low = 0, high = 0;
};
// REQUIRES: at least one value.
MedianInterval median_interval(std::vector<double> values);

struct CopyBench {
  int64_t interval = 0;      // steps from one copy to the next
  int64_t window_steps = 0;  // a multiple of it
  MedianInterval ratio;      // seconds of a window with copies over those of one without
  std::vector<double> ratios;
  double step_seconds = 0;     // without copies, of the median window
  double device_seconds = 0;   // of a copy on the device
  double host_seconds = 0;     // for which a copy blocks the host, besides waiting for the step
  double prepare_seconds = 0;  // until the memory could receive copies, beside nothing
  int64_t bytes = 0;           // of a copy
  int64_t made = 0, skipped = 0, verified = 0;  // copies; verified: of those that are left

  double bytes_per_second() const {
    return device_seconds > 0 ? static_cast<double>(bytes) / device_seconds : 0;
  }
};

struct CopyBenchParts {
  engine::Engine& engine;
  engine::MicrobatchSource& source;
  const spec::ModelSpec& model;
  device::Device& device;
  int64_t interval = 1;
};
// Copies into memory of a memfd, by MemoryCopies. The first step was made before. Throws
// OutOfMemory if the host lacks the memory, and Error if copies cannot be made or are damaged.
CopyBench bench_copies(const CopyBenchParts&);

base::Json to_json(const CopyBench&);

}  // namespace trireme::train
