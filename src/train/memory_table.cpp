// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "base/check.h"
#include "obs/number_text.h"
#include "obs/table.h"
#include "train/trainer.h"

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
                                    {"kept for backward", predicted.stash(), measured.stash()},
                                    {"scratch", predicted.scratch, measured.scratch},
                                    {"exchange", predicted.comm, measured.comm},
                                    {"input batches", predicted.staging, measured.staging},
                                    {"sum", predicted.total(), measured.total()}}};
  const std::array<obs::Column, 4> columns = {
      {{"memory, bytes", obs::Align::left}, {"predicted"}, {"measured"}, {"difference"}}};
  std::vector<std::vector<std::string>> cells;
  for (const Row& row : rows) {
    if (&row == &rows.back()) cells.emplace_back();
    if (row.predicted == 0 && row.measured == 0) continue;
    cells.push_back({row.name, obs::grouped(row.predicted), obs::grouped(row.measured),
                     obs::grouped(row.measured - row.predicted)});
  }
  const auto& [host_predicted, host_measured] = checkpoints;
  if (host_predicted != 0 || host_measured != 0) {
    cells.push_back({"checkpoints, on the host", obs::grouped(host_predicted),
                     obs::grouped(host_measured), obs::grouped(host_measured - host_predicted)});
  }
  return obs::table_text(columns, cells);
}

std::string ranks_table_text(const TrainSummary& summary) {
  const std::array<obs::Column, 5> columns = {{{"rank", obs::Align::left},
                                               {"memory predicted"},
                                               {"measured"},
                                               {"bytes sent, predicted"},
                                               {"counted"}}};
  std::vector<std::vector<std::string>> cells;
  for (size_t rank = 0; rank < summary.ranks.size(); ++rank) {
    const RankFigures& figures = summary.ranks[rank];
    cells.push_back({fmt::format("{}", rank), obs::grouped(figures.predicted.total()),
                     obs::grouped(figures.measured.total()),
                     obs::grouped(figures.predicted_traffic_bytes),
                     obs::grouped(figures.counted_traffic_bytes)});
  }
  return obs::table_text(columns, cells);
}

}  // namespace trireme::train
