// SPDX-License-Identifier: Apache-2.0
#include "train/report/memory_table.h"

#include <array>

#include "base/check.h"
#include "obs/terminal/number_text.h"
#include "obs/terminal/table.h"

namespace trireme::train {

std::string memory_table_text(const spec::MemoryTable& predicted, const spec::MemoryTable& measured,
                              const RunCheckpoints::Memory& checkpoints) {
  struct Row {
    const char* name;
    int64_t predicted, measured;
  };
  const std::array<Row, 8> rows = {{{"parameters", predicted.params, measured.params},
                                    {"gradients", predicted.grads, measured.grads},
                                    {"optimizer", predicted.optim, measured.optim},
                                    {"activations", predicted.stash(), measured.stash()},
                                    {"scratch", predicted.scratch, measured.scratch},
                                    {"communication buffers", predicted.comm, measured.comm},
                                    {"input batches", predicted.staging, measured.staging},
                                    {"sum", predicted.total(), measured.total()}}};
  std::vector<obs::Column> columns = {
      {"memory, bytes", obs::Align::left}, {"predicted"}, {"measured"}, {"difference"}};
  // Bytes alone are hard to read where they are many.
  const bool is_large = predicted.total() >= int64_t{1} << 30;
  if (is_large) columns.push_back({"measured, GiB"});
  std::vector<std::vector<std::string>> cells;
  const auto add = [&](const char* name, int64_t wanted, int64_t found) {
    cells.push_back(
        {name, obs::grouped(wanted), obs::grouped(found), obs::grouped(found - wanted)});
    if (is_large)
      cells.back().push_back(fmt::format("{:.2f}", static_cast<double>(found) / 0x1p30));
  };
  for (const Row& row : rows) {
    if (&row == &rows.back()) cells.emplace_back();
    if (row.predicted == 0 && row.measured == 0) continue;
    add(row.name, row.predicted, row.measured);
  }
  const auto& [host_predicted, host_measured] = checkpoints;
  if (host_predicted != 0 || host_measured != 0) {
    add("checkpoints, on the host", host_predicted, host_measured);
  }
  return obs::table_text(columns, cells);
}

std::string ranks_table_text(std::span<const RankFigures> ranks) {
  const std::array<obs::Column, 5> columns = {{{"rank", obs::Align::left},
                                               {"memory predicted"},
                                               {"measured"},
                                               {"bytes sent, predicted"},
                                               {"counted"}}};
  std::vector<std::vector<std::string>> cells;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankFigures& figures = ranks[rank];
    cells.push_back({fmt::format("{}", rank), obs::grouped(figures.predicted.total()),
                     obs::grouped(figures.measured.total()),
                     obs::grouped(figures.predicted_traffic_bytes),
                     obs::grouped(figures.counted_traffic_bytes)});
  }
  return obs::table_text(columns, cells);
}

}  // namespace trireme::train
