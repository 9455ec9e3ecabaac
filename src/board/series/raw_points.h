// SPDX-License-Identifier: Apache-2.0
// Raw points: every value of a tag in metrics.jsonl, with the digits that stand there, in the order
// of the file; a step that was repeated has several.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

namespace trireme::board {

enum class RawFormat : uint8_t { csv, json };

struct RawQuery {
  std::string tag;
  int64_t from = std::numeric_limits<int64_t>::min();
  int64_t to = std::numeric_limits<int64_t>::max();  // inclusive
  RawFormat format = RawFormat::csv;
  int64_t end = std::numeric_limits<int64_t>::max();  // bytes of the file that are read
};

// Passes text to `write` in blocks, until it returns false. CSV has the columns step, time and
// value; JSON is {"tag":...,"points":[[step,time,value],...]}.
void write_raw(const std::filesystem::path& metrics, const RawQuery& query,
               const std::function<bool(std::string_view)>& write);

}  // namespace trireme::board
