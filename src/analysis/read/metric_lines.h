// SPDX-License-Identifier: Apache-2.0
// Reads metrics.jsonl: the metrics of steps as columns. It scans lines without building JSON
// values, so that the file of a million steps is read in seconds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "analysis/run_record.h"

namespace trireme::analysis {

struct MetricLines {
  std::map<std::string, Series> series;  // by tag, of lines of kind "train"
  int64_t attempt = 0;                   // the last
  int64_t last_step = 0;                 // of the last attempt
  double begin_time = 0, last_time = 0;  // of the first and the last line
  int64_t damaged = 0;                   // lines that are no object with kind and step
  std::string problem;                   // empty, or why the file was not read, or not to its end
};

// The tags that read_run() keeps.
std::span<const std::string_view> read_tags();

// Ignores an incomplete last line. Returns empty columns and a problem if there is no such file.
MetricLines read_metrics(const std::filesystem::path& path, std::span<const std::string_view> tags);

// Returns the loss of the first step in the file, which may be NaN or infinite; none if there is
// none near its begin.
std::optional<double> first_loss(const std::filesystem::path& path);

}  // namespace trireme::analysis
