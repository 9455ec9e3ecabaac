// SPDX-License-Identifier: Apache-2.0
#include "train/measure/op_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace trireme::train {

std::vector<OpTime> op_times(const std::vector<TimedOp>& ops) {
  std::map<std::string, OpTime> by_name;
  for (const TimedOp& op : ops) {
    const std::string name =
        fmt::format("{} {}x{}x{}", op_name(op.cost), op.cost.m, op.cost.n, op.cost.k);
    OpTime& time = by_name[name];
    time.name = name;
    time.seconds += op.seconds();
    time.flops += op.cost.flops;
    time.bytes += static_cast<double>(op.cost.bytes);
    ++time.count;
  }
  std::vector<OpTime> times;
  for (auto& [name, time] : by_name) times.push_back(std::move(time));
  std::sort(times.begin(), times.end(), [](const OpTime& a, const OpTime& b) {
    return std::pair(a.seconds, a.name) > std::pair(b.seconds, b.name);
  });
  return times;
}

}  // namespace trireme::train
