// SPDX-License-Identifier: Apache-2.0
// Raw points of a tag: as CSV every value in metrics.jsonl, with the digits that stand there, in
// the order of the file, so that a step that was repeated has several lines; as JSON the points
// that are drawn.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "board/series/metric_store.h"

namespace trireme::board {

struct RawQuery {
  std::string tag;
  int64_t from = std::numeric_limits<int64_t>::min();
  int64_t to = std::numeric_limits<int64_t>::max();  // inclusive
};

// Passes CSV with the columns step, time and value to `write` in blocks, until it returns false.
void write_raw(const std::filesystem::path& metrics, const RawQuery& query,
               const std::function<bool(std::string_view)>& write);

// Returns {"step":[...],"time":[...],"value":[...]}; of a repeated step the last value.
std::string drawn_points_json(const MetricStore& store, int tag, const RawQuery& query);

}  // namespace trireme::board
