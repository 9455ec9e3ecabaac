// SPDX-License-Identifier: Apache-2.0
#include "train/report/memory_table.h"

#include <array>

#include "base/check.h"
#include "obs/terminal/number_text.h"
#include "obs/terminal/table.h"

namespace trireme::train {

std::vector<MemoryRow> memory_rows(const spec::MemoryTable& predicted,
                                   const spec::MemoryTable& measured) {
  return {{"parameters", predicted.params, measured.params},
          {"gradients", predicted.grads, measured.grads},
          {"optimizer", predicted.optim, measured.optim},
          {"activations", predicted.stash(), measured.stash()},
          {"scratch", predicted.scratch, measured.scratch},
          {"communication buffers", predicted.comm, measured.comm},
          {"batch", predicted.staging, measured.staging},
          {"sum", predicted.total(), measured.total()}};
}

std::string memory_table_text(const spec::MemoryTable& predicted, const spec::MemoryTable& measured,
                              const HostMemory& host) {
  std::vector<obs::Column> columns = {
      {"memory, bytes", obs::Align::left}, {"predicted"}, {"measured"}, {"difference"}};
  // Large numbers of bytes are hard to read.
  const bool is_large = predicted.total() >= int64_t{1} << 30;
  if (is_large) columns.push_back({"measured, GiB"});
  std::vector<std::vector<std::string>> cells;
  const auto add = [&](const MemoryRow& row) {
    cells.push_back({row.name, obs::grouped(row.predicted), obs::grouped(row.measured),
                     obs::grouped(row.measured - row.predicted)});
    if (is_large)
      cells.back().push_back(fmt::format("{:.2f}", static_cast<double>(row.measured) / 0x1p30));
  };
  std::vector<MemoryRow> rows = memory_rows(predicted, measured);
  const MemoryRow sum = rows.back();
  rows.pop_back();
  for (const MemoryRow& row : rows) {
    if (!row.is_empty()) add(row);
  }
  cells.emplace_back();  // a rule above the sum
  if (!sum.is_empty()) add(sum);
  const auto add_host = [&add](const char* name, const HostMemoryUse& use) {
    const MemoryRow row{name, use.predicted_bytes, use.measured_bytes};
    if (!row.is_empty()) add(row);
  };
  add_host("batches and signals, on the host", host.buffers);
  add_host("checkpoints, on the host", host.checkpoints);
  add_host("state during a rebuild, on the host", host.rebuild);
  add_host("copies that outlive processes, on the host", host.copies);
  add_host("copies of other ranks, on the host", host.kept);
  return obs::table_text(columns, cells);
}

std::string host_line(const HostBytes& host) {
  std::string parts;
  const auto add = [&parts](const char* name, int64_t bytes) {
    if (bytes > 0)
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, obs::bytes_text(bytes));
  };
  add("batches and signals", host.buffer_bytes);
  add("checkpoints", host.checkpoint_bytes);
  add("state while the engine is replaced (phases, row budgets of experts, fall-back to bf16)",
      host.rebuild_bytes);
  add("copies that outlive processes", host.peer_bytes);
  add("copies of other ranks", host.kept_bytes);
  return fmt::format("memory    at most {} of the host on each rank: {}",
                     obs::bytes_text(host.largest()), parts);
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
