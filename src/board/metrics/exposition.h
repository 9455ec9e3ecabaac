// SPDX-License-Identifier: Apache-2.0
// GET /metrics: the state of the runs for Prometheus, as OpenMetrics 1.0 or as the older text
// format 0.0.4. The number of series is bounded at any size of a job, and a value of a run that has
// ended, or of ranks that report no more, is left out instead of repeated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "board/request.h"

namespace trireme::board {

class Board;

enum class MetricType : uint8_t { gauge, counter };

struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;
};

// One name with all its series. `name` has no "_total"; a unit is the end of the name.
struct MetricFamily {
  std::string name, help, unit;
  MetricType type = MetricType::gauge;
  std::vector<MetricSample> samples;
};

// Every run of a board has some, and about forty runs that are going on have all of theirs.
constexpr size_t max_series = 2000;
constexpr size_t max_ranks_shown = 8;  // the latest of each run

// Families without samples are left out. `limit`: of series. Runs that are going on come first,
// then those that ended last.
std::vector<MetricFamily> metric_families(const Board& board, size_t limit = max_series);
std::string exposition_text(const std::vector<MetricFamily>& families, bool is_openmetrics);
Response metrics_response(const Board& board, const Request& request);

}  // namespace trireme::board
