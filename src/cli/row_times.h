// SPDX-License-Identifier: Apache-2.0
// Time by operation and shape. Streams must be inline: an operation then runs between its own
// report and the next one, and the time between is its time.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "obs/clock.h"

namespace trireme::cli {

class RowTimes final : public kernels::OpObserver {
 public:
  void op(const device::Stream& /*stream*/, const spec::OpCost& cost) override {
    close();
    open_ = fmt::format("{} {}x{}x{}", spec::name_of(cost.kind), cost.m, cost.n, cost.k);
    flops_[open_] += cost.flops;
    begin_ = obs::steady_seconds();
  }

  // Ends the operation that runs last.
  void close() {
    if (!open_.empty()) seconds_[open_] += obs::steady_seconds() - begin_;
    open_.clear();
  }

  std::string text(int64_t steps) const {
    std::vector<std::pair<double, std::string>> rows;
    for (const auto& [name, seconds] : seconds_) rows.emplace_back(seconds, name);
    std::sort(rows.rbegin(), rows.rend());
    std::string out;
    for (const auto& [seconds, name] : rows) {
      out += fmt::format("{:9.3f} ms a step  {:6.1f} GFLOP/s  {}\n",
                         1e3 * seconds / static_cast<double>(steps),
                         flops_.at(name) / seconds / 1e9, name);
    }
    return out;
  }

 private:
  std::string open_;
  double begin_ = 0;
  std::map<std::string, double> seconds_, flops_;
};

}  // namespace trireme::cli
