// SPDX-License-Identifier: Apache-2.0
// What the store knows of all ranks, for a verdict.
#include <fmt/format.h>

#include "comm/store_wire.h"
#include "comm/verdict.h"

namespace trireme::comm {

std::string position_key(int rank) { return fmt::format("rank/{}/position", rank); }

std::vector<RankReport> read_reports(Store& store, int world) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world; ++rank) {
    keys.push_back(position_key(rank));
    keys.push_back(Store::gone_key(std::to_string(rank)));
  }
  const auto values = store.read(keys);
  std::vector<RankReport> reports(static_cast<size_t>(world));
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    RankReport& report = reports[rank];
    if (const auto& told = values[2 * rank]) {
      report.position = position_from(told->text);
      report.silent_s = told->age_s;
    }
    if (const auto& gone = values[2 * rank + 1]) {
      report.ended = "ended without a word";
      report.departure = integer_from(gone->text).value_or(0);
    }
  }
  return reports;
}

}  // namespace trireme::comm
