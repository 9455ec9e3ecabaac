// SPDX-License-Identifier: Apache-2.0
// Reads the reports of all ranks from the store, for a verdict.
#include <fmt/format.h>

#include <algorithm>

#include "comm/failure/verdict.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {

std::string position_key(int rank) { return fmt::format("rank/{}/position", rank); }

std::vector<RankReport> read_reports(Store& store, int world) {
  std::vector<RankReport> reports(static_cast<size_t>(world));
  // In parts: a reply of the store has a maximum size, and other clients are served in between.
  constexpr int part_ranks = 512;
  for (int begin = 0; begin < world; begin += part_ranks) {
    const int end = std::min(world, begin + part_ranks);
    std::vector<std::string> keys;
    for (int rank = begin; rank < end; ++rank) {
      keys.push_back(position_key(rank));
      keys.push_back(Store::gone_key(std::to_string(rank)));
    }
    const auto values = store.read(keys);
    for (int rank = begin; rank < end; ++rank) {
      RankReport& report = reports[static_cast<size_t>(rank)];
      const size_t at = 2 * static_cast<size_t>(rank - begin);
      if (const auto& stored = values[at]) {
        report.position = position_from(stored->text, world);
        report.silent_s = stored->age_s;
      }
      if (const auto& gone = values[at + 1]) {
        report.ended = "exited without reporting an error";
        report.departure = integer_from(gone->text).value_or(0);
      }
    }
  }
  return reports;
}

std::string verdict_text(const std::string& stored) {
  std::string text;
  for (const char c : stored) {
    const auto code = static_cast<unsigned char>(c);
    text += code < 0x20 || code == 0x7f ? ' ' : c;
  }
  return text.find_first_not_of(' ') == std::string::npos ? "aborted" : text;
}

}  // namespace trireme::comm
