// SPDX-License-Identifier: Apache-2.0
// Time by operation and shape, from the events of observed steps.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/report/op_timeline.h"

namespace trireme::train {

class OpTimes {
 public:
  void add(const std::vector<TimedOp>& ops) {
    for (const TimedOp& op : ops) {
      Row& row =
          rows_[fmt::format("{} {}x{}x{}", op_name(op.cost), op.cost.m, op.cost.n, op.cost.k)];
      row.seconds += op.seconds();
      row.flops += op.cost.flops;
      row.bytes += static_cast<double>(op.cost.bytes);
      ++row.count;
    }
  }

  std::string text(int64_t steps) const {
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [name, row] : rows_) order.emplace_back(row.seconds, name);
    std::sort(order.rbegin(), order.rend());
    std::string out;
    const auto n = static_cast<double>(steps);
    for (const auto& [seconds, name] : order) {
      const Row& row = rows_.at(name);
      const double at_least = std::max(seconds, 1e-9);
      out += fmt::format("{:9.3f} ms a step  {:5.0f} x  {:9.1f} GFLOP/s  {:8.1f} GB/s  {}\n",
                         1e3 * seconds / n, static_cast<double>(row.count) / n,
                         row.flops / at_least / 1e9, row.bytes / at_least / 1e9, name);
    }
    return out;
  }

 private:
  struct Row {
    double seconds = 0, flops = 0, bytes = 0;
    int64_t count = 0;
  };
  std::map<std::string, Row> rows_;
};

}  // namespace trireme::train
