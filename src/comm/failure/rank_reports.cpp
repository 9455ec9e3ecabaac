// SPDX-License-Identifier: Apache-2.0
// What the store knows of all ranks, for a verdict.
#include <fmt/format.h>

#include <algorithm>

#include "comm/store/store_wire.h"
#include "comm/failure/verdict.h"

namespace trireme::comm {

std::string position_key(int rank) { return fmt::format("rank/{}/position", rank); }

std::vector<RankReport> read_reports(Store& store, int world) {
  std::vector<RankReport> reports(static_cast<size_t>(world));
  // By parts: an answer of the store has a largest size, and others get their turn in between.
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
      if (const auto& told = values[at]) {
        report.position = position_from(told->text, world);
        report.silent_s = told->age_s;
      }
      if (const auto& gone = values[at + 1]) {
        report.ended = "ended without a word";
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
